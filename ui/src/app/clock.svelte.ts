// Now, as the screen knows it: times that are shown as "3 min ago" grow older together.

class Clock {
  now = $state(Date.now());

  start(): void {
    setInterval(() => (this.now = Date.now()), 1000);
  }
}

export const clock = new Clock();
