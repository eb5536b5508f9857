"""Flows as values: random graphs, ends in any order, told as often as anybody likes (I17)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.flow_jobs import COMPENSATION, job_id, place_of
from tidemill.core.graph import (
    Each,
    Going,
    Graph,
    Node,
    OnFailure,
    Stopped,
    Why,
    Work,
    decode,
    encode,
    problem_with,
)
from tidemill.core.graph_ends import JobEnd, ended
from tidemill.core.graph_next import begun, is_over, made, making, over, unmeasured
from tidemill.core.graph_state import (
    ENDED,
    FlowState,
    StepState,
    progress_of,
    state_of,
    state_of_step,
    to_retry,
)
from tidemill.core.index_sets import IndexSet
from tidemill.core.states import State

WORK = Work(task="t", queue="q", priority=5)
AT_ONCE = 3


def node(name: str, *after: str, **more: object) -> Node:
    return msgspec.structs.replace(Node(name=name, work=WORK, after=after), **more)


def graph_of(*nodes: Node) -> Graph:
    return Graph(nodes=nodes)


def each(step: str) -> Each:
    return Each(argument="item", step=step)


def go_on(graph: Graph, ends: Iterable[JobEnd] = (), lengths: dict[str, int] | None = None) -> Graph:
    """Take ends, and make all there is to make."""
    graph = begun(ended(graph, ends), lengths or {})
    while jobs := making(graph, AT_ONCE):
        graph = begun(made(graph, jobs), lengths or {})
    return graph


def done(step: str, *indexes: int) -> list[JobEnd]:
    return [JobEnd(step, index, State.DONE) for index in indexes or (0,)]


def failed(step: str, *indexes: int) -> list[JobEnd]:
    return [JobEnd(step, index, State.FAILED) for index in indexes or (0,)]


def live(graph: Graph) -> set[tuple[str, int]]:
    plain = {(name, index) for name, going in graph.going.items() for index in going.live}
    return plain | {
        (name + COMPENSATION, index) for name, going in graph.going.items() for index in going.compensating
    }


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 7))):
        before = [one.name for one in nodes]
        parents = draw(st.lists(st.sampled_from(before), max_size=3, unique=True)) if before else []
        maps = draw(st.booleans())
        mapped = each(parents.pop()) if parents and maps else None
        on_failure = draw(st.sampled_from((OnFailure.FAIL, OnFailure.FAIL, *OnFailure)))
        nodes.append(
            node(
                f"s{number}",
                *parents,
                each=mapped,
                on_failure=on_failure,
                compensation=WORK if on_failure is OnFailure.COMPENSATE else None,
            )
        )
    return Graph(nodes=tuple(nodes))


class Run:
    """One life of a flow, in the hands of whatever `draw` decides."""

    def __init__(self, graph: Graph, draw: st.DataObject) -> None:
        self.graph, self.draw = graph, draw
        self.lengths = {one.name: draw.draw(st.integers(0, 4)) for one in graph.nodes}
        self.made: list[tuple[str, int]] = []
        self.states: dict[tuple[str, int], State] = {}

    def make(self) -> None:
        self.graph = begun(self.graph, {})
        while waiting := unmeasured(self.graph):
            self.graph = begun(self.graph, {one.name: self.lengths[one.name] for one in waiting})
        for job in making(self.graph, AT_ONCE):
            assert all(is_over(self.graph, parent) for parent in job.node.parents)
            at = (job.node.name + COMPENSATION * job.compensates, job.index)
            self.made.append(at)
            self.states[at] = State.READY
            self.graph = made(self.graph, [job])

    def end_some(self, *, well: bool) -> None:
        """Ends of several jobs, some of them told twice, and of jobs that ended long ago."""
        under_way = sorted(live(self.graph))
        some = self.draw.draw(st.lists(st.sampled_from(under_way), min_size=1, max_size=3))
        kinds = (State.DONE,) if well else (State.DONE, State.DONE, State.FAILED, State.CANCELLED)
        for at in some:
            self.states[at] = self.draw.draw(st.sampled_from(kinds))
        old = self.draw.draw(st.lists(st.sampled_from(sorted(self.states)), max_size=2))
        self.graph = ended(self.graph, [JobEnd(*at, self.states[at]) for at in (*some, *old, *some)])

    def until_it_ends(self, *, well: bool = False) -> None:
        for _ in range(10_000):
            self.make()
            if state_of(self.graph) in ENDED:
                return
            if live(self.graph):
                self.end_some(well=well)
        raise AssertionError("it does not end")


class TestEveryFlow:
    @given(graphs(), st.data())
    def test_ends_and_makes_no_job_twice(self, graph: Graph, data: st.DataObject) -> None:
        """I17: a step begins when its parents are done, a join once, and every flow ends."""
        assert problem_with(graph) is None
        run = Run(graph, data)
        run.until_it_ends()
        assert len(run.made) == len(set(run.made))
        assert live(run.graph) == set()
        assert decode(encode(run.graph)) == run.graph
        if state_of(run.graph) is FlowState.DONE:
            assert progress_of(run.graph) == 1
            assert all(is_over(run.graph, one.name) for one in graph.nodes)

    @given(graphs(), st.data())
    def test_retried_it_goes_on_and_repeats_nothing(self, graph: Graph, data: st.DataObject) -> None:
        run = Run(graph, data)
        run.until_it_ends()
        before = {at for at, state in run.states.items() if state is State.DONE}
        again = list(to_retry(run.graph))
        assert not before & set(again)
        if state_of(run.graph) is not FlowState.FAILED:
            return
        assert again
        run.states |= dict.fromkeys(again, State.READY)
        run.graph = ended(run.graph, [JobEnd(*at, State.READY) for at in again])
        assert state_of(run.graph) is FlowState.RUNNING
        run.until_it_ends(well=True)
        assert state_of(run.graph) is FlowState.DONE
        assert len(run.made) == len(set(run.made))

    @given(graphs(), st.data())
    def test_stopped_it_makes_nothing_more(self, graph: Graph, data: st.DataObject) -> None:
        run = Run(graph, data)
        run.make()
        run.graph = msgspec.structs.replace(run.graph, stopped=Stopped(Why.CANCELLED, "enough"))
        count = len(run.made)
        run.make()
        assert len(run.made) == count
        assert state_of(run.graph) is FlowState.CANCELLED

    @given(graphs(), st.data())
    def test_ends_may_come_in_any_order(self, graph: Graph, data: st.DataObject) -> None:
        run = Run(graph, data)
        run.make()
        kinds = st.sampled_from((State.DONE, State.FAILED))
        ends = [JobEnd(*at, data.draw(kinds)) for at in sorted(live(run.graph))]
        other = data.draw(st.permutations(ends + ends))
        one_by_one = run.graph
        for end in other:
            one_by_one = ended(one_by_one, [end])
        assert one_by_one == ended(run.graph, ends)


class TestSteps:
    def test_a_join_waits_for_all(self) -> None:
        graph = go_on(graph_of(node("a"), node("b"), node("c", "a", "b")))
        assert live(graph) == {("a", 0), ("b", 0)}
        graph = go_on(graph, done("a"))
        assert graph.nodes[2].parents - over(graph) == {"b"}
        assert live(go_on(graph, done("b"))) == {("c", 0)}

    def test_a_list_becomes_jobs_in_portions(self) -> None:
        graph = go_on(graph_of(node("a"), node("b", each=each("a")), node("c", "b")))
        graph = begun(ended(graph, done("a")), {})
        assert [one.name for one in unmeasured(graph)] == ["b"]
        graph = begun(graph, {"b": AT_ONCE + 1})
        first = making(graph, AT_ONCE)
        assert [job.index for job in first] == [0, 1, 2]
        graph = made(graph, first)
        graph = ended(graph, done("b", 0, 1, 2))
        assert not is_over(graph, "b")
        graph = go_on(graph)
        assert live(graph) == {("b", 3)}
        assert live(go_on(graph, done("b", 3))) == {("c", 0)}

    def test_of_nothing_comes_nothing_and_the_join_at_once(self) -> None:
        graph = graph_of(node("a"), node("b", each=each("a")), node("c", each=each("b")), node("d", "c"))
        graph = go_on(go_on(graph), done("a"), {"b": 0})
        assert live(graph) == {("d", 0)}
        assert graph.of("c").count == 0

    def test_a_long_chain_of_nothing(self) -> None:
        """Each over the empty list before it: all end in one go."""
        steps = [node(f"s{n}", each=each(f"s{n - 1}")) for n in range(1, 300)]
        graph = go_on(graph_of(node("s0", each=Each(argument="item")), *steps))
        assert state_of(graph) is FlowState.DONE

    def test_a_list_of_the_flow_itself(self) -> None:
        items = (msgspec.Raw(b"1"), msgspec.Raw(b"2"))
        graph = go_on(graph_of(node("a", each=Each(argument="item", items=items))))
        assert live(graph) == {("a", 0), ("a", 1)}

    def test_elements_stay_until_all_of_them_have_a_job(self) -> None:
        items = tuple(msgspec.Raw(b"%d" % number) for number in range(AT_ONCE + 1))
        graph = begun(graph_of(node("a", each=Each(argument="item", items=items))), {})
        graph = made(graph, making(graph, AT_ONCE))
        assert graph.nodes[0].each == Each(argument="item", items=items)
        graph = decode(encode(made(graph, making(graph, AT_ONCE))))
        assert graph.nodes[0].each == Each(argument="item")
        assert (graph.of("a").count, making(graph, AT_ONCE)) == (AT_ONCE + 1, [])


class TestFailures:
    def test_nothing_new_is_started_and_what_is_under_way_goes_on(self) -> None:
        graph = go_on(go_on(graph_of(node("a"), node("b"), node("c", "b"))), failed("a"))
        assert state_of(graph) is FlowState.FAILING
        assert state_of_step(graph, graph.nodes[0]) is StepState.FAILED
        graph = go_on(graph, done("b"))
        assert state_of(graph) is FlowState.FAILED
        assert live(graph) == set()
        assert state_of_step(graph, graph.nodes[2]) is StepState.WAITING

    def test_let_go(self) -> None:
        graph = go_on(graph_of(node("a", on_failure=OnFailure.CONTINUE), node("b", "a")))
        graph = go_on(graph, failed("a"))
        assert live(graph) == {("b", 0)}
        assert list(to_retry(graph)) == []
        assert state_of(go_on(graph, done("b"))) is FlowState.DONE

    def test_compensated(self) -> None:
        graph = graph_of(node("a", on_failure=OnFailure.COMPENSATE, compensation=WORK), node("b", "a"))
        graph = go_on(go_on(graph), failed("a"))
        assert live(graph) == {("a!", 0)}
        assert state_of(graph) is FlowState.RUNNING
        assert live(go_on(graph, done("a!"))) == {("b", 0)}
        lost = go_on(graph, failed("a!"))
        assert state_of(lost) is FlowState.FAILED
        assert list(to_retry(lost)) == [("a!", 0)]

    def test_brought_back_by_hand_it_runs_again(self) -> None:
        graph = go_on(go_on(graph_of(node("a"), node("b", "a"))), failed("a"))
        assert state_of(graph) is FlowState.FAILED
        graph = go_on(graph, [JobEnd("a", 0, State.SCHEDULED)])
        assert state_of(graph) is FlowState.RUNNING
        assert live(go_on(graph, done("a"))) == {("b", 0)}

    def test_brought_back_after_a_cancel_too(self) -> None:
        graph = msgspec.structs.replace(go_on(graph_of(node("a"))), stopped=Stopped(Why.TIMEOUT, "late"))
        graph = ended(graph, [JobEnd("a", 0, State.CANCELLED)])
        assert state_of(graph) is FlowState.FAILED
        assert state_of(ended(graph, [JobEnd("a", 0, State.READY)])) is FlowState.RUNNING

    def test_a_job_that_is_gone_has_failed_unless_it_was_done(self) -> None:
        graph = go_on(graph_of(node("a"), node("b")))
        graph = go_on(graph, [*done("a"), JobEnd("b", 0, None)])
        assert state_of(graph) is FlowState.FAILED
        assert ended(graph, [JobEnd("a", 0, None)]) == graph

    def test_a_done_one_that_was_run_again_and_failed(self) -> None:
        """Nobody looked in between: all that is told is how it is now."""
        graph = go_on(go_on(graph_of(node("a"))), done("a"))
        assert state_of(ended(graph, failed("a"))) is FlowState.FAILED

    def test_what_is_none_of_its_jobs_changes_nothing(self) -> None:
        graph = go_on(graph_of(node("a"), node("b", "a")))
        for strange in (done("c"), done("a", 1), done("b"), done("a!")):
            assert ended(graph, strange).of("a") == graph.of("a")
            assert live(ended(graph, strange)) == live(graph)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (graph_of(), "at least one step"),
        (graph_of(node("a", "b")), "step 'a'.*'b'.*no such step"),
        (graph_of(node("a"), node("a")), "step 'a'.*another step has that name"),
        (graph_of(node("a", "c"), node("b", "a"), node("c", "b")), "step '[abc]'.*wait for itself"),
        (graph_of(node("a", "a")), "step 'a'.*wait for itself"),
        (graph_of(node("a/b")), "slash"),
        (graph_of(node("a!")), "end with '!'"),
        (graph_of(node("")), "step ''.*1 to 200"),
        (graph_of(node("a"), node("b", arguments={"x": msgspec.Raw(b"1")}, reads={"x": "a"})), "'x'.*twice"),
    ],
)
def test_what_could_never_run_is_refused_by_name(graph: Graph, words: str) -> None:
    problem = problem_with(graph)
    assert problem is not None
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(problem)


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)))
def test_index_sets_are_sets(one: set[int], other: set[int]) -> None:
    a, b = IndexSet.of(one), IndexSet.of(other)
    assert set(a | b) == one | other
    assert set(a & b) == one & other
    assert list(a - b) == sorted(one - other)
    assert len(a) == len(one)
    assert all(index in a for index in one)
    assert IndexSet.from_text(a.as_text()) == a


def test_ten_thousand_in_little_space() -> None:
    going = Going(count=10_000, made=10_000, done=IndexSet.below(10_000))
    assert len(encode(Graph(nodes=(node("a"),), going={"a": going}))) < 3_000


def test_a_job_says_by_its_id_where_it_belongs() -> None:
    assert place_of("dub/7", job_id("dub/7", "speak!", 12)) == ("speak!", 12)
    for strange in ("dub/7", "dub/7/0", "dub/70/speak/1", "dub/7/speak/x"):
        assert place_of("dub/7", strange) is None
