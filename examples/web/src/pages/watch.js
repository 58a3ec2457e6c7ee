// While the tab is seen.
setInterval(async () => {
  if (document.hidden) return;
  const numbers = await (await fetch(location.pathname + "/numbers")).json();
  for (const [id, text] of Object.entries(numbers)) document.getElementById(id).textContent = text;
}, 500);
