// A video that is somewhere on its own map from the clock's seconds, and follows it by playing faster and slower.
import { Lag } from "./lag.js";

const SLOPE = 0.04; // wall seconds over which the slope of a map is read
const CATCH_UP = 0.12; // wall seconds in which a follower makes good what it is off
const JUMP = 0.3; // own seconds: a follower that is off by more is put in its place
const AHEAD = 0.006; // own seconds: one that is ahead by more of something too slow to play waits
const STAND = 0.25; // wall seconds: where the map has not come within so many, the one that waits is put in its place
const SLOWEST = 0.0625; // what browsers play
const FASTEST = 16;

export class Player {
  constructor(video, map) {
    this.video = video;
    this.map = map;
    this.broken = false;
    this.idle = false; // not to be seen: it need not follow
    this.wanted = null; // where to go once the seek under way is done
    this.lag = new Lag(video);
    this.took = 0; // wall seconds of the last seek
    video.preservesPitch = false; // a follower is muted, and its lag is then the same at any speed
    video.addEventListener("seeking", () => { this.left = performance.now(); });
    video.addEventListener("seeked", () => this.arrive());
    video.addEventListener("loadedmetadata", () => this.arrive());
    video.addEventListener("error", () => { this.broken = true; });
  }

  seek(second) {
    const own = Math.max(0, this.map.at(second));
    const { video } = this;
    this.lag.forget();
    if (video.readyState === 0 || video.seeking) {
      this.wanted = own;
    } else {
      // A seek may end before its event arrives: an earlier wish is then void.
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
    if (idle) this.pause();
  }

  pause() {
    this.lag.forget();
    if (!this.video.paused) this.video.pause();
  }

  arrive() {
    if (this.left) this.took = (performance.now() - this.left) / 1000;
    this.left = null;
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
    const { video, map, lag } = this;
    if (!this.settled || this.broken || this.idle) return;
    const own = video.currentTime;
    const now = performance.now() / 1000;
    if (Math.abs(map.at(second) - own) > JUMP) {
      this.seek(second + Math.min(this.took, JUMP) * speed);
      return;
    }
    // What is ordered now is done later: where will the map be by then, and where the video? A start is obeyed at once.
    if (!video.paused) lag.observe(now, own);
    const then = second + (video.paused ? 0 : lag.seconds * speed);
    const target = map.at(then);
    const missing = target - own - lag.underway(now);
    const rate = (map.at(then + SLOPE * speed) - target) / SLOPE + missing / CATCH_UP;
    if (rate < SLOWEST && (video.paused || missing < -AHEAD) || video.ended) {
      this.pause();
      if (own - map.at(second + STAND * speed) > AHEAD) this.seek(second);
      return;
    }
    video.playbackRate = Math.min(Math.max(rate, SLOWEST), FASTEST);
    if (video.paused) {
      lag.order(now - lag.seconds, video.playbackRate);
      start(video);
    } else {
      lag.order(now, video.playbackRate);
    }
  }
}

// Start a video; being paused again before it ran is no error, being forbidden to is.
export function start(video, refused = () => {}) {
  video.play().catch((error) => {
    if (error.name === "NotAllowedError") refused();
  });
}
