// How late a video obeys a new speed. Where it has sound, heard or not, browsers have some of it under way at the old
// speed: 60 ms in Chromium, and nothing without sound. No browser reports it, so it is estimated: of several lags, the one by
// which the speeds that were ordered explain best how far the video got.

const SOUND = 0.06; // the lag to begin with where a video has sound
const LAGS = Array.from({ length: 21 }, (_, step) => step / 100); // seconds
const STARTING = 0.3; // wall seconds after a start that teach nothing: a start has a lag of its own
const TELLING = 0.002; // own seconds by which lags have to differ in what they expect
const FORGETTING = 0.98; // weight of earlier observations at each new one

export class Lag {
  constructor(video) {
    this.video = video;
    this.known = false;
    this.errors = LAGS.map(() => 0);
    this.forget();
  }

  get seconds() {
    if (this.known) return LAGS[this.errors.indexOf(Math.min(...this.errors))];
    const { mozHasAudio, webkitAudioDecodedByteCount, audioTracks } = this.video;
    return mozHasAudio || webkitAudioDecodedByteCount || audioTracks?.length ? SOUND : 0;
  }

  // The video was stopped or moved: earlier orders are void.
  forget() {
    this.orders = []; // [second, speed], each good until the next
    this.seen = null;
  }

  order(now, speed) {
    this.orders.push([now, speed]);
    const oldest = now - 2 * LAGS[LAGS.length - 1];
    while (this.orders.length > 1 && this.orders[1][0] < oldest) this.orders.shift();
  }

  // How far the video gets by orders that have not taken effect yet.
  underway(now) {
    return this.covered(now - this.seconds, now);
  }

  // Learn from where the video is now.
  observe(now, own) {
    const before = this.seen;
    this.seen = { now, own };
    const started = this.orders[0]?.[0] ?? now;
    if (!before || before.now - LAGS[LAGS.length - 1] < started || now - started < STARTING) return;
    const expected = LAGS.map((lag) => this.covered(before.now - lag, now - lag));
    if (Math.max(...expected) - Math.min(...expected) < TELLING) return;
    expected.forEach((way, k) => { this.errors[k] = FORGETTING * this.errors[k] + (own - before.own - way) ** 2; });
    this.known = true;
  }

  // Own seconds that the orders between two moments make.
  covered(from, to) {
    let way = 0;
    this.orders.forEach(([since, speed], k) => {
      const until = this.orders[k + 1]?.[0] ?? Infinity;
      way += speed * Math.max(0, Math.min(until, to) - Math.max(since, from));
    });
    return way;
  }
}
