"""Flows as values: random graphs, job ends in any order, reported any number of times (I17)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.flow_graph import (
    FanOut,
    FlowGraph,
    FlowStop,
    IndexSet,
    JobTemplate,
    OnFailure,
    StepNode,
    StepProgress,
    StopReason,
    decode_graph,
    encode_graph,
    problem_with_graph,
)
from tidemill.core.flow_progress import (
    FINAL_FLOW_STATES,
    FlowState,
    StepJobState,
    StepState,
    apply_job_states,
    begin_steps,
    finished_steps,
    flow_completion,
    flow_state,
    is_step_finished,
    jobs_to_retry,
    mark_created,
    next_jobs,
    step_state,
    steps_of_unknown_length,
)
from tidemill.core.jobs import COMPENSATION_SUFFIX, flow_job_id, parse_flow_job_id
from tidemill.core.states import State

WORK = JobTemplate(task="t", queue="q", priority=5)
AT_ONCE = 3


def node(name: str, *after: str, **more: object) -> StepNode:
    return msgspec.structs.replace(StepNode(name=name, work=WORK, after=after), **more)


def graph_of(*nodes: StepNode) -> FlowGraph:
    return FlowGraph(nodes=nodes)


def each(step: str) -> FanOut:
    return FanOut(argument="item", step=step)


def go_on(
    graph: FlowGraph, ends: Iterable[StepJobState] = (), lengths: dict[str, int] | None = None
) -> FlowGraph:
    """Applies ends and creates all possible jobs."""
    graph = begin_steps(apply_job_states(graph, ends), lengths or {})
    while jobs := next_jobs(graph, AT_ONCE):
        graph = begin_steps(mark_created(graph, jobs), lengths or {})
    return graph


def done(step: str, *indexes: int) -> list[StepJobState]:
    return [StepJobState(step, index, State.DONE) for index in indexes or (0,)]


def failed(step: str, *indexes: int) -> list[StepJobState]:
    return [StepJobState(step, index, State.FAILED) for index in indexes or (0,)]


def live(graph: FlowGraph) -> set[tuple[str, int]]:
    plain = {
        (name, index) for name, step_progress in graph.step_progress.items() for index in step_progress.live
    }
    return plain | {
        (name + COMPENSATION_SUFFIX, index)
        for name, step_progress in graph.step_progress.items()
        for index in step_progress.compensating
    }


@st.composite
def graphs(draw: st.DrawFn) -> FlowGraph:
    nodes: list[StepNode] = []
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
                fan_out=mapped,
                on_failure=on_failure,
                compensation=WORK if on_failure is OnFailure.COMPENSATE else None,
            )
        )
    return FlowGraph(nodes=tuple(nodes))


class Run:
    """One run of a flow, controlled by `draw`."""

    def __init__(self, graph: FlowGraph, draw: st.DataObject) -> None:
        self.graph, self.draw = graph, draw
        self.lengths = {one.name: draw.draw(st.integers(0, 4)) for one in graph.nodes}
        self.made: list[tuple[str, int]] = []
        self.states: dict[tuple[str, int], State] = {}

    def make(self) -> None:
        self.graph = begin_steps(self.graph, {})
        while waiting := steps_of_unknown_length(self.graph):
            self.graph = begin_steps(self.graph, {one.name: self.lengths[one.name] for one in waiting})
        for job in next_jobs(self.graph, AT_ONCE):
            assert all(is_step_finished(self.graph, parent) for parent in job.node.parents)
            at = (job.node.name + COMPENSATION_SUFFIX * job.compensates, job.index)
            self.made.append(at)
            self.states[at] = State.READY
            self.graph = mark_created(self.graph, [job])

    def end_some(self, *, well: bool) -> None:
        """Reports ends of several jobs, some of them twice, and of jobs that ended long ago."""
        under_way = sorted(live(self.graph))
        some = self.draw.draw(st.lists(st.sampled_from(under_way), min_size=1, max_size=3))
        kinds = (State.DONE,) if well else (State.DONE, State.DONE, State.FAILED, State.CANCELLED)
        for at in some:
            self.states[at] = self.draw.draw(st.sampled_from(kinds))
        old = self.draw.draw(st.lists(st.sampled_from(sorted(self.states)), max_size=2))
        self.graph = apply_job_states(
            self.graph, [StepJobState(*at, self.states[at]) for at in (*some, *old, *some)]
        )

    def until_it_ends(self, *, well: bool = False) -> None:
        for _ in range(10_000):
            self.make()
            if flow_state(self.graph) in FINAL_FLOW_STATES:
                return
            if live(self.graph):
                self.end_some(well=well)
        raise AssertionError("it does not end")


class TestEveryFlow:
    @given(graphs(), st.data())
    def test_every_flow_ends_and_creates_no_job_twice(self, graph: FlowGraph, data: st.DataObject) -> None:
        """I17: a step begins when its parents are done, a join once, and every flow ends."""
        assert problem_with_graph(graph) is None
        run = Run(graph, data)
        run.until_it_ends()
        assert len(run.made) == len(set(run.made))
        assert live(run.graph) == set()
        assert decode_graph(encode_graph(run.graph)) == run.graph
        if flow_state(run.graph) is FlowState.DONE:
            assert flow_completion(run.graph) == 1
            assert all(is_step_finished(run.graph, one.name) for one in graph.nodes)

    @given(graphs(), st.data())
    def test_a_retried_flow_continues_and_repeats_nothing(
        self, graph: FlowGraph, data: st.DataObject
    ) -> None:
        run = Run(graph, data)
        run.until_it_ends()
        before = {at for at, state in run.states.items() if state is State.DONE}
        again = list(jobs_to_retry(run.graph))
        assert not before & set(again)
        if flow_state(run.graph) is not FlowState.FAILED:
            return
        assert again
        run.states |= dict.fromkeys(again, State.READY)
        run.graph = apply_job_states(run.graph, [StepJobState(*at, State.READY) for at in again])
        assert flow_state(run.graph) is FlowState.RUNNING
        run.until_it_ends(well=True)
        assert flow_state(run.graph) is FlowState.DONE
        assert len(run.made) == len(set(run.made))

    @given(graphs(), st.data())
    def test_a_stopped_flow_creates_no_more_jobs(self, graph: FlowGraph, data: st.DataObject) -> None:
        run = Run(graph, data)
        run.make()
        run.graph = msgspec.structs.replace(run.graph, stopped=FlowStop(StopReason.CANCELLED, "enough"))
        count = len(run.made)
        run.make()
        assert len(run.made) == count
        assert flow_state(run.graph) is FlowState.CANCELLED

    @given(graphs(), st.data())
    def test_ends_may_come_in_any_order(self, graph: FlowGraph, data: st.DataObject) -> None:
        run = Run(graph, data)
        run.make()
        kinds = st.sampled_from((State.DONE, State.FAILED))
        ends = [StepJobState(*at, data.draw(kinds)) for at in sorted(live(run.graph))]
        other = data.draw(st.permutations(ends + ends))
        one_by_one = run.graph
        for end in other:
            one_by_one = apply_job_states(one_by_one, [end])
        assert one_by_one == apply_job_states(run.graph, ends)


class TestSteps:
    def test_a_join_waits_for_all(self) -> None:
        graph = go_on(graph_of(node("a"), node("b"), node("c", "a", "b")))
        assert live(graph) == {("a", 0), ("b", 0)}
        graph = go_on(graph, done("a"))
        assert graph.nodes[2].parents - finished_steps(graph) == {"b"}
        assert live(go_on(graph, done("b"))) == {("c", 0)}

    def test_the_jobs_of_a_list_are_created_in_portions(self) -> None:
        graph = go_on(graph_of(node("a"), node("b", fan_out=each("a")), node("c", "b")))
        graph = begin_steps(apply_job_states(graph, done("a")), {})
        assert [one.name for one in steps_of_unknown_length(graph)] == ["b"]
        graph = begin_steps(graph, {"b": AT_ONCE + 1})
        first = next_jobs(graph, AT_ONCE)
        assert [job.index for job in first] == [0, 1, 2]
        graph = mark_created(graph, first)
        graph = apply_job_states(graph, done("b", 0, 1, 2))
        assert not is_step_finished(graph, "b")
        graph = go_on(graph)
        assert live(graph) == {("b", 3)}
        assert live(go_on(graph, done("b", 3))) == {("c", 0)}

    def test_an_empty_list_creates_no_jobs_and_the_join_starts_at_once(self) -> None:
        graph = graph_of(
            node("a"), node("b", fan_out=each("a")), node("c", fan_out=each("b")), node("d", "c")
        )
        graph = go_on(go_on(graph), done("a"), {"b": 0})
        assert live(graph) == {("d", 0)}
        assert graph.of("c").count == 0

    def test_a_long_chain_of_empty_lists_ends_at_once(self) -> None:
        """Each step maps over the empty list before it: all end at once."""
        steps = [node(f"s{n}", fan_out=each(f"s{n - 1}")) for n in range(1, 300)]
        graph = go_on(graph_of(node("s0", fan_out=FanOut(argument="item")), *steps))
        assert flow_state(graph) is FlowState.DONE

    def test_a_step_can_map_over_given_items(self) -> None:
        items = (msgspec.Raw(b"1"), msgspec.Raw(b"2"))
        graph = go_on(graph_of(node("a", fan_out=FanOut(argument="item", items=items))))
        assert live(graph) == {("a", 0), ("a", 1)}

    def test_items_are_kept_until_all_of_them_have_a_job(self) -> None:
        items = tuple(msgspec.Raw(b"%d" % number) for number in range(AT_ONCE + 1))
        graph = begin_steps(graph_of(node("a", fan_out=FanOut(argument="item", items=items))), {})
        graph = mark_created(graph, next_jobs(graph, AT_ONCE))
        assert graph.nodes[0].fan_out == FanOut(argument="item", items=items)
        graph = decode_graph(encode_graph(mark_created(graph, next_jobs(graph, AT_ONCE))))
        assert graph.nodes[0].fan_out == FanOut(argument="item")
        assert (graph.of("a").count, next_jobs(graph, AT_ONCE)) == (AT_ONCE + 1, [])


class TestFailures:
    def test_no_new_job_starts_and_running_jobs_continue(self) -> None:
        graph = go_on(go_on(graph_of(node("a"), node("b"), node("c", "b"))), failed("a"))
        assert flow_state(graph) is FlowState.FAILING
        assert step_state(graph, graph.nodes[0]) is StepState.FAILED
        graph = go_on(graph, done("b"))
        assert flow_state(graph) is FlowState.FAILED
        assert live(graph) == set()
        assert step_state(graph, graph.nodes[2]) is StepState.WAITING

    def test_a_tolerated_failure_does_not_stop_the_flow(self) -> None:
        graph = go_on(graph_of(node("a", on_failure=OnFailure.CONTINUE), node("b", "a")))
        graph = go_on(graph, failed("a"))
        assert live(graph) == {("b", 0)}
        assert list(jobs_to_retry(graph)) == []
        assert flow_state(go_on(graph, done("b"))) is FlowState.DONE

    def test_a_compensation_replaces_a_failed_job(self) -> None:
        graph = graph_of(node("a", on_failure=OnFailure.COMPENSATE, compensation=WORK), node("b", "a"))
        graph = go_on(go_on(graph), failed("a"))
        assert live(graph) == {("a!", 0)}
        assert flow_state(graph) is FlowState.RUNNING
        assert live(go_on(graph, done("a!"))) == {("b", 0)}
        lost = go_on(graph, failed("a!"))
        assert flow_state(lost) is FlowState.FAILED
        assert list(jobs_to_retry(lost)) == [("a!", 0)]

    def test_a_retried_job_resumes_a_failed_flow(self) -> None:
        graph = go_on(go_on(graph_of(node("a"), node("b", "a"))), failed("a"))
        assert flow_state(graph) is FlowState.FAILED
        graph = go_on(graph, [StepJobState("a", 0, State.SCHEDULED)])
        assert flow_state(graph) is FlowState.RUNNING
        assert live(go_on(graph, done("a"))) == {("b", 0)}

    def test_a_retried_job_resumes_a_cancelled_flow(self) -> None:
        graph = msgspec.structs.replace(
            go_on(graph_of(node("a"))), stopped=FlowStop(StopReason.TIMEOUT, "late")
        )
        graph = apply_job_states(graph, [StepJobState("a", 0, State.CANCELLED)])
        assert flow_state(graph) is FlowState.FAILED
        assert flow_state(apply_job_states(graph, [StepJobState("a", 0, State.READY)])) is FlowState.RUNNING

    def test_a_deleted_job_counts_as_failed_unless_it_was_done(self) -> None:
        graph = go_on(graph_of(node("a"), node("b")))
        graph = go_on(graph, [*done("a"), StepJobState("b", 0, None)])
        assert flow_state(graph) is FlowState.FAILED
        assert apply_job_states(graph, [StepJobState("a", 0, None)]) == graph

    def test_a_done_job_that_ran_again_and_failed(self) -> None:
        """No advance happened in between, so only the current state is reported."""
        graph = go_on(go_on(graph_of(node("a"))), done("a"))
        assert flow_state(apply_job_states(graph, failed("a"))) is FlowState.FAILED

    def test_jobs_of_other_flows_change_nothing(self) -> None:
        graph = go_on(graph_of(node("a"), node("b", "a")))
        for strange in (done("c"), done("a", 1), done("b"), done("a!")):
            assert apply_job_states(graph, strange).of("a") == graph.of("a")
            assert live(apply_job_states(graph, strange)) == live(graph)


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
def test_an_impossible_graph_is_refused_and_names_the_step(graph: FlowGraph, words: str) -> None:
    problem = problem_with_graph(graph)
    assert problem is not None
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(problem)


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)))
def test_an_index_set_behaves_like_a_set(one: set[int], other: set[int]) -> None:
    a, b = IndexSet.of(one), IndexSet.of(other)
    assert set(a | b) == one | other
    assert set(a & b) == one & other
    assert list(a - b) == sorted(one - other)
    assert len(a) == len(one)
    assert all(index in a for index in one)
    assert IndexSet.from_text(a.as_text()) == a


def test_ten_thousand_indexes_need_little_space() -> None:
    step_progress = StepProgress(count=10_000, made=10_000, done=IndexSet.below(10_000))
    assert len(encode_graph(FlowGraph(nodes=(node("a"),), step_progress={"a": step_progress}))) < 3_000


def test_a_job_id_names_its_step_and_index() -> None:
    assert parse_flow_job_id("dub/7", flow_job_id("dub/7", "speak!", 12)) == ("speak!", 12)
    for strange in ("dub/7", "dub/7/0", "dub/70/speak/1", "dub/7/speak/x"):
        assert parse_flow_job_id("dub/7", strange) is None
