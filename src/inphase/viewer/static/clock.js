// One clock for everything. While it plays, the reference's video drives it and the others follow; when it stands, all
// of them are put exactly where they belong.

const SLOPE = 0.04; // wall seconds over which the slope of a map is read
const CATCH_UP = 0.16; // wall seconds in which a follower makes good what it is off
const JUMP = 0.3; // own seconds: a follower that is off by more is put in its place
const SLOWEST = 0.0625; // what browsers play; one that is ahead of something slower waits
const FASTEST = 16;

// A video that is somewhere on its own map from the clock's seconds.
export class Player {
  constructor(video, map) {
    this.video = video;
    this.map = map;
    this.broken = false;
    this.idle = false; // not to be seen: it need not follow
    this.wanted = null; // where to go once the seek under way is done
    video.addEventListener("seeked", () => this.arrive());
    video.addEventListener("loadedmetadata", () => this.arrive());
    video.addEventListener("error", () => { this.broken = true; });
  }

  seek(second) {
    const own = Math.max(0, this.map.at(second));
    const { video } = this;
    if (video.readyState === 0 || video.seeking) {
      this.wanted = own;
    } else {
      // A seek may be over before its event is told: what was wanted then is no longer.
      this.wanted = null;
      if (video.currentTime !== own) this.go(own);
    }
  }

  go(own) {
    const last = this.video.duration;
    this.video.currentTime = last ? Math.min(own, last) : own;
  }

  rest(idle) {
    this.idle = idle;
    if (idle) this.video.pause();
  }

  arrive() {
    if (this.wanted === null) return;
    const own = this.wanted;
    this.wanted = null;
    this.go(own);
  }

  get settled() {
    return this.broken || this.idle || (this.wanted === null && !this.video.seeking && this.video.readyState >= 2);
  }

  // Run as the map does from here, and make good what is missing.
  follow(second, speed) {
    const { video, map } = this;
    if (!this.settled || this.broken || this.idle) return;
    const target = map.at(second);
    const missing = target - video.currentTime;
    if (Math.abs(missing) > JUMP) {
      this.seek(second);
      return;
    }
    const rate = (map.at(second + SLOPE * speed) - target) / SLOPE + missing / CATCH_UP;
    if ((rate < SLOWEST && missing <= 0) || video.ended) {
      if (!video.paused) video.pause();
      return;
    }
    video.playbackRate = Math.min(Math.max(rate, SLOWEST), FASTEST);
    if (video.paused) start(video);
  }
}

// What a page needs of time: `time`, `playing`, `speed`, `loop`, and the events "time" and "state".
export class Clock extends EventTarget {
  constructor({ duration, rate }) {
    super();
    Object.assign(this, { duration, rate, time: 0, playing: false, speed: 1, looping: false });
    this.loop = { start: 0, end: duration };
    this.reference = null;
    this.followers = [];
    this.holding = false; // playing, but waiting for videos to arrive
  }

  drive(player) {
    this.reference = player;
    player.video.addEventListener("ended", () => this.playing && !this.holding && this.finish());
  }

  add(player) {
    this.followers.push(player);
  }

  get players() {
    return this.reference ? [this.reference, ...this.followers] : this.followers;
  }

  seek(second) {
    this.time = Math.min(Math.max(second, 0), this.duration);
    for (const player of this.players) player.seek(this.time);
    if (this.playing) this.hold();
    this.tell("time");
  }

  // Go to the middle of a frame: its edge would be a matter of rounding.
  step(frames) {
    this.pause();
    const frame = Math.floor(this.time * this.rate + 1e-3) + frames;
    const last = Math.ceil(this.duration * this.rate - 1e-3) - 1;
    this.seek((Math.min(Math.max(frame, 0), last) + 0.5) / this.rate);
  }

  get frame() {
    return Math.floor(this.time * this.rate + 1e-3);
  }

  play() {
    if (this.playing) return;
    this.playing = true;
    const { start, end } = this.bounds;
    if (this.time >= end - 0.5 / this.rate || this.time < start) this.seek(start);
    else for (const player of this.players) player.seek(this.time);
    this.tell("state");
    this.hold();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    for (const { video } of this.players) video.pause();
    this.seek(this.time);
    this.tell("state");
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  setSpeed(speed) {
    this.speed = speed;
    if (this.reference) this.reference.video.playbackRate = speed;
    this.tell("state");
  }

  setLoop(changes) {
    Object.assign(this, { looping: true }, changes);
    this.tell("state");
  }

  get bounds() {
    return this.looping ? this.loop : { start: 0, end: this.duration };
  }

  // Wait until every video has arrived, then let the reference run.
  hold() {
    for (const { video } of this.players) video.pause();
    this.holding = true;
    this.since = performance.now();
    this.run();
  }

  run() {
    this.frameRequest ??= requestAnimationFrame((now) => {
      this.frameRequest = null;
      if (!this.playing) return;
      this.advance(now);
      this.run();
    });
  }

  advance(now) {
    const driver = this.reference && !this.reference.broken ? this.reference.video : null;
    if (this.holding) {
      const late = now - this.since > 3000;
      if (!late && !this.players.every((player) => player.settled)) return;
      this.holding = false;
      if (driver) {
        driver.playbackRate = this.speed;
        start(driver, () => this.pause());
      }
      for (const player of this.followers) player.follow(this.time, this.speed);
      this.last = now;
      return;
    }
    const elapsed = Math.max(0, now - this.last) / 1000;
    this.last = now;
    if (driver) {
      if (driver.readyState < 3 && !driver.ended) return this.stall();
      this.time = Math.min(driver.currentTime, this.duration);
    } else {
      this.time += elapsed * this.speed;
    }
    if (this.time >= this.bounds.end || driver?.ended) return this.finish();
    for (const player of this.followers) player.follow(this.time, this.speed);
    this.tell("time");
  }

  // The reference has run dry: nobody runs ahead of it.
  stall() {
    for (const { video } of this.followers) video.pause();
  }

  finish() {
    if (this.looping) {
      this.seek(this.bounds.start);
    } else {
      this.time = this.duration;
      this.pause();
    }
  }

  tell(what) {
    this.dispatchEvent(new Event(what));
  }
}

// Start a video; being paused again before it ran is no error, being forbidden to is.
function start(video, refused = () => {}) {
  video.play().catch((error) => {
    if (error.name === "NotAllowedError") refused();
  });
}
