// Runs before the first paint, so that a stored theme does not flash.
try {
  const theme = JSON.parse(localStorage.getItem("transformer.theme"));
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's theme is used.
}
