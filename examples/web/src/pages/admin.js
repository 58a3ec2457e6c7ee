const panel = document.getElementById("panel");
new EventSource("/admin/events?video=" + panel.dataset.video).onmessage = (event) => {
  panel.innerHTML = event.data;
};
