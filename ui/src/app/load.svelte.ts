// Something that is asked for: while it comes, when it is there, and when it could not be had.

export class Loaded<T> {
  data = $state.raw<T | null>(null);
  error = $state.raw<unknown>(null);
  loading = $state(true);
  #ask: () => Promise<T>;
  #turn = 0;

  constructor(ask: () => Promise<T>) {
    this.#ask = ask;
  }

  /** Asks again; what was there stays until the answer comes, and only the newest answer counts. */
  async refresh(): Promise<void> {
    const turn = ++this.#turn;
    this.loading = true;
    try {
      const data = await this.#ask();
      if (turn === this.#turn) [this.data, this.error] = [data, null];
    } catch (error) {
      if (turn === this.#turn) this.error = error;
    } finally {
      if (turn === this.#turn) this.loading = false;
    }
  }
}

/** Never two at a time, for the older answer may come last: whoever asks meanwhile waits for one that is asked afterwards. */
export function oneByOne(ask: () => Promise<void>): () => Promise<void> {
  let current: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  const begin = (): Promise<void> => (current = ask().finally(() => (current = null)));
  const after = (): Promise<void> => {
    next = null;
    return begin();
  };
  return () => next ?? (current ? (next = current.then(after, after)) : begin());
}

/** At most one call in so many milliseconds, the last one always. */
export function paced(milliseconds: number, action: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      action();
    }, milliseconds);
  };
}
