// Runs before anything is drawn, so that nobody sees a page in the other colours first.
const theme = localStorage.getItem("tidemill-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
