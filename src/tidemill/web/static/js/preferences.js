// The theme and the language, stored in this browser.
const theme = document.querySelector("[data-theme-choice]");
const language = document.querySelector("[data-language-choice]");
const YEAR = 365 * 24 * 3600;

if (theme) {
  theme.value = localStorage.getItem("tidemill-theme") ?? "system";
  theme.addEventListener("change", () => {
    if (theme.value === "system") {
      localStorage.removeItem("tidemill-theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("tidemill-theme", theme.value);
      document.documentElement.dataset.theme = theme.value;
    }
    document.dispatchEvent(new Event("tidemill:theme"));
  });
}

language?.addEventListener("change", () => {
  const path = language.dataset.languageChoice;
  document.cookie = `tidemill-language=${language.value}; path=${path}; max-age=${YEAR}; samesite=lax`;
  location.reload();
});
