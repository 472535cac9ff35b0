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

/** At most so often is asked for what events have changed, in milliseconds. */
const PACE = 150;

/** What is asked for and kept up by events in between. Never two questions at a time, for the older answer may come last. */
export class KeptUp {
  #ask: () => Promise<void>;
  #current: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(ask: () => Promise<void>) {
    this.#ask = ask;
  }

  /** Whoever asks while an answer is on its way waits for one that is asked afterwards. */
  readonly look = (): Promise<void> =>
    this.#next ?? (this.#current ? (this.#next = this.#current.then(this.#after, this.#after)) : this.#begin());

  /** Soon, and once for all that happens until then. */
  readonly lookSoon = (): void => {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.look();
    }, PACE);
  };

  /** Takes what an event tells. An answer that is on its way may be older and would undo it: then it is asked again. */
  take(news: () => void): void {
    news();
    if (this.#current) this.lookSoon();
  }

  #begin(): Promise<void> {
    return (this.#current = this.#ask().finally(() => (this.#current = null)));
  }

  #after = (): Promise<void> => {
    this.#next = null;
    return this.#begin();
  };
}
