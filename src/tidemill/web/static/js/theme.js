// Runs before the first paint, so that the page does not flash in the other theme.
const theme = localStorage.getItem("tidemill-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
