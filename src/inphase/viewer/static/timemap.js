// Where a track is at each second of the reference: straight lines between knots, held before and after them.

export class TimeMap {
  constructor(reference = null, own = null) {
    this.reference = reference;
    this.own = own;
  }

  at(second) {
    return this.reference ? interpolate(this.reference, this.own, second) : second;
  }

  // The reference's second at which the track is there; the middle of them where it stands still.
  inverse(second) {
    if (!this.reference) return second;
    const first = firstNotBelow(this.own, second);
    const after = firstNotBelow(this.own, second, true);
    if (first < after) return (this.reference[first] + this.reference[after - 1]) / 2;
    return interpolate(this.own, this.reference, second);
  }
}

// Read the line through (x, y) at a place; x must not decrease.
export function interpolate(x, y, place) {
  const at = fractionalIndex(x, place);
  const below = Math.floor(at);
  const part = at - below;
  return part === 0 ? y[below] : y[below] + part * (y[below + 1] - y[below]);
}

// Find a place between the entries of a list that does not decrease, from 0 to its last index.
export function fractionalIndex(list, place) {
  const last = list.length - 1;
  if (!(place > list[0])) return 0;
  if (place >= list[last]) return last;
  const above = firstNotBelow(list, place);
  if (list[above] === place) return above;
  return above - 1 + (place - list[above - 1]) / (list[above] - list[above - 1]);
}

function firstNotBelow(list, value, orEqual = false) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (orEqual ? list[middle] <= value : list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
