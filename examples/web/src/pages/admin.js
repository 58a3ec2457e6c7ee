const main = document.getElementById("main");
const video = document.querySelector("[data-video]").dataset.video;

// Parts that are as they were stay in place, so that screen readers announce a status once.
function show(parts) {
  for (const [id, html] of Object.entries(parts)) {
    const place = document.getElementById(id);
    if (place.innerHTML !== html) place.innerHTML = html;
  }
}

// While the tab is seen, as on a video's page.
let events;
function look() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource("/admin/events?video=" + video);
  events.onmessage = (event) => show(JSON.parse(event.data));
}
document.addEventListener("visibilitychange", look);
look();

// The forms, without a new page: the focus and what was typed stay.
for (const form of main.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const refusal = form.querySelector("[role=alert]");
    refusal.textContent = "";
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { accept: "application/json" },
      body: new URLSearchParams(new FormData(form, event.submitter)),
    });
    if (answer.ok) return show(await answer.json());
    refusal.textContent = await answer.text();
  });
}
