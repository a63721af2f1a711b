'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const by = (id) => document.getElementById(id);
  const [form, bandwidth, latency] = ['link', 'bandwidth', 'latency'].map(by);
  const presets = [...form.querySelectorAll('[data-preset]')];

  // As jaguar_plan::predict: computing and transfer partly at the same time, and round trips on top.
  const part = (of, link) =>
    Math.hypot(of.seconds, of.bytes / link.bytes_per_second) + of.rounds * link.round_trip;
  const takes = {
    offline: (plan, link) => part(plan.offline, link),
    online: (plan, link) => part(plan.online, link),
    hint: (plan, link) => part(plan.hint, link),
    keys: (plan, link) => plan.keys / link.bytes_per_second,
    image: (plan, link) => (part(plan.offline, link) + part(plan.online, link)) / data.images,
  };
  const three = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const rate = (bytes) => (bytes >= 1e9 ? three(bytes / 1e9) + ' GB/s' : three(bytes / 1e6) + ' MB/s');
  const millis = (seconds) => three(seconds * 1e3) + ' ms';

  function show(link) {
    for (const cell of document.querySelectorAll('[data-seconds]')) {
      const plan = data.plans[cell.dataset.plan];
      if (plan) cell.textContent = takes[cell.dataset.seconds](plan, link).toFixed(2);
    }
    for (const cell of document.querySelectorAll('[data-layer]')) {
      const [bytes, rounds] = data.layers[cell.dataset.layer];
      const seconds = bytes / link.bytes_per_second + rounds * link.round_trip;
      cell.textContent = seconds < 5e-6 ? '–' : (seconds * 1e3).toFixed(2);
    }
    const words = { rate: rate(link.bytes_per_second), 'round-trip': millis(link.round_trip) };
    for (const place of document.querySelectorAll('[data-link]')) place.textContent = words[place.dataset.link];
    bandwidth.setAttribute('aria-valuetext', words.rate);
    latency.setAttribute('aria-valuetext', words['round-trip']);
  }
  // A screen reader says this when the slider rests, not at each step.
  let speaking;
  function speak(link) {
    const plan = data.plans[0];
    clearTimeout(speaking);
    if (plan) speaking = setTimeout(() => {
      by('spoken').textContent = 'A query takes ' + takes.offline(plan, link).toFixed(2) + ' seconds offline and '
        + takes.online(plan, link).toFixed(2) + ' seconds online.';
    }, 700);
  }
  function pressed(which) {
    for (const button of presets) button.setAttribute('aria-pressed', String(Number(button.dataset.preset) === which));
  }
  function preset(which) {
    const link = which < 0 ? data.link : data.links[which];
    bandwidth.value = Math.log10(link.bytes_per_second);
    latency.value = Math.log10(Math.max(link.round_trip, 1e-5));
    pressed(which);
    show(link);
    return link;
  }
  for (const slider of [bandwidth, latency]) {
    slider.addEventListener('input', () => {
      pressed(NaN);
      const link = { bytes_per_second: 10 ** Number(bandwidth.value), round_trip: 10 ** Number(latency.value) };
      show(link);
      speak(link);
    });
  }
  for (const button of presets) button.addEventListener('click', () => speak(preset(Number(button.dataset.preset))));
  form.hidden = false;
  // page.html#wan opens with that link.
  const named = presets.find((button) => '#' + button.textContent === location.hash);
  preset(named ? Number(named.dataset.preset) : -1);
})();
