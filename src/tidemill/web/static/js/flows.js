// Scrolls a large graph to a failed step, else to an active one.
const frame = document.querySelector(".graph-frame");
const step = frame?.querySelector(".step.state-failed") ?? frame?.querySelector(".step:is(.state-running, .state-ready, .state-scheduled)");
if (step) {
  const box = step.getBBox();
  frame.scrollLeft = box.x + box.width / 2 - frame.clientWidth / 2;
  frame.scrollTop = box.y + box.height / 2 - frame.clientHeight / 2;
}
