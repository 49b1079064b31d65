// The theme of the site for the pages of the inspector within it, which otherwise follow the system.

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function sendTheme(frame) {
  const chosen = document.body.dataset.theme;
  const theme = chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
  frame.contentWindow.postMessage({ theme }, "*"); // a page read from a file has no origin that could be named
}

function sendThemes() {
  document.querySelectorAll(".inspector iframe").forEach(sendTheme);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const frame of document.querySelectorAll(".inspector iframe")) frame.addEventListener("load", () => sendTheme(frame));
  new MutationObserver(sendThemes).observe(document.body, { attributeFilter: ["data-theme"] });
  dark.addEventListener("change", sendThemes);
  sendThemes();
});
