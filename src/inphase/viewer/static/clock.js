// One clock for everything. While it plays, the reference's video drives it and the others follow; when it stands, all
// of them are put exactly where they belong.
import { start } from "./player.js";

const STEERING = 12; // milliseconds between checks of the position of the videos

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
    player.video.preservesPitch = true;
    player.video.addEventListener("ended", () => this.playing && !this.holding && this.finish());
  }

  add(player) {
    this.followers.push(player);
    if (player.map.at(this.time) > 0) player.seek(this.time); // a part of a recording begins later
  }

  get players() {
    return this.reference ? [this.reference, ...this.followers] : this.followers;
  }

  seek(second) {
    this.time = Math.min(Math.max(second, 0), this.duration);
    for (const player of this.players) player.seek(this.time);
    if (this.playing) this.hold();
    this.emit("time");
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
    this.emit("state");
    this.hold();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    clearInterval(this.steering);
    this.steering = null;
    for (const player of this.players) player.pause();
    this.seek(this.time);
    this.emit("state");
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  setSpeed(speed) {
    this.speed = speed;
    if (this.reference) this.reference.video.playbackRate = speed;
    this.emit("state");
  }

  setLoop(changes) {
    Object.assign(this, { looping: true }, changes);
    this.emit("state");
  }

  get bounds() {
    return this.looping ? this.loop : { start: 0, end: this.duration };
  }

  // Wait until every video has arrived, then let the reference run.
  hold() {
    for (const player of this.players) player.pause();
    this.holding = true;
    this.since = performance.now();
    this.run();
  }

  // Videos are steered more often than the page is drawn: on a slow machine that is seldom.
  run() {
    this.steering ??= setInterval(() => this.steer(), STEERING);
    this.frameRequest ??= requestAnimationFrame(() => {
      this.frameRequest = null;
      if (!this.playing) return;
      if (this.holding) this.release();
      else if (this.steer()) this.emit("time");
      this.run();
    });
  }

  get driver() {
    return this.reference && !this.reference.broken ? this.reference.video : null;
  }

  release() {
    const now = performance.now();
    if (now - this.since < 3000 && !this.players.every((player) => player.settled)) return;
    this.holding = false;
    this.last = now;
    if (!this.driver) return;
    this.driver.playbackRate = this.speed;
    this.from = this.driver.currentTime;
    start(this.driver, () => this.pause());
  }

  // Steer the followers; return whether the clock has moved.
  steer() {
    if (!this.playing || this.holding) return false;
    const { driver } = this;
    const now = performance.now();
    const elapsed = (now - this.last) / 1000;
    this.last = now;
    if (driver) {
      if (driver.readyState < 3 && !driver.ended) return this.stall();
      if (driver.currentTime === this.from) return false; // it has yet to begin
      this.from = null;
      this.time = Math.min(driver.currentTime, this.duration);
    } else {
      this.time += elapsed * this.speed;
    }
    if (this.time >= this.bounds.end || driver?.ended) return this.finish();
    for (const player of this.followers) player.follow(this.time, this.speed);
    return true;
  }

  // The reference has run dry: nobody runs ahead of it.
  stall() {
    for (const player of this.followers) player.pause();
    return false;
  }

  finish() {
    if (this.looping) {
      this.seek(this.bounds.start);
    } else {
      this.time = this.duration;
      this.pause();
    }
    return false;
  }

  emit(what) {
    this.dispatchEvent(new Event(what));
  }
}
