function show(texts) {
  for (const [name, text] of Object.entries(texts))
    for (const place of document.querySelectorAll(`[data-live="${name}"]`))
      place.textContent = text;
}

new EventSource(location.pathname + "/events").onmessage = (event) =>
  show(JSON.parse(event.data));

const form = document.querySelector("form.like");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const liked = form.elements.liked;
  const answer = await fetch(form.action, {
    method: "POST",
    headers: { accept: "application/json" },
    body: new URLSearchParams({ liked: liked.value }),
  });
  if (!answer.ok) return form.submit(); // and let its answer be read
  show(await answer.json());
  const now = liked.value === "true";
  liked.value = String(!now);
  form.querySelector("button").setAttribute("aria-pressed", String(now));
});
