// Comparisons of a target with its source, kept up by events: one of them, and all of a pipeline.

import { reconcile, reconcilesOf, type Reconcile } from '../../api/calls';
import { events } from '../../api/events.svelte';
import { KeptUp } from '../../app/load.svelte';

const PAGE = 25;

export class Comparing {
  readonly id: string;
  reconcile = $state.raw<Reconcile | null>(null);
  error = $state.raw<unknown>(null);

  constructor(id: string) {
    this.id = id;
  }

  /** Answers how to stop following. */
  follow(): () => void {
    void this.refresh();
    return events.listen((event) => {
      if (event.topic === 'reset') this.#kept.lookSoon();
      else if (event.topic === 'reconcile.status' && this.#concerns(event.data)) this.#kept.lookSoon();
      else if (event.topic === 'reconcile.progress' && event.data.id === this.id)
        this.#kept.take(() => (this.reconcile = event.data));
    });
  }

  readonly #kept = new KeptUp(() => this.#ask());
  readonly refresh = this.#kept.look;

  async #ask(): Promise<void> {
    try {
      [this.reconcile, this.error] = [await reconcile(this.id), null];
    } catch (error) {
      this.error = error;
    }
  }

  /** It names the proof of its repair. */
  #concerns(news: Reconcile): boolean {
    return news.id === this.id || news.repair_of === this.id;
  }
}

export class Comparisons {
  readonly pipeline: string;
  /** Newest first; null until they are known. */
  list = $state.raw<Reconcile[] | null>(null);
  next = $state<string | null>(null);
  error = $state.raw<unknown>(null);

  constructor(pipeline: string) {
    this.pipeline = pipeline;
  }

  /** Answers how to stop following. */
  follow(): () => void {
    const kept = new KeptUp(() => this.#look());
    void kept.look();
    return events.listen((event) => {
      if (event.topic === 'reset') return kept.lookSoon();
      if (event.topic !== 'reconcile.status' && event.topic !== 'reconcile.progress') return;
      const news = event.data;
      if (news.pipeline !== this.pipeline) return;
      if (event.topic === 'reconcile.status') kept.lookSoon();
      else kept.take(() => (this.list = this.list?.map((each) => (each.id === news.id ? news : each)) ?? null));
    });
  }

  async more(): Promise<void> {
    const page = await reconcilesOf(this.pipeline, { limit: PAGE, cursor: this.next ?? '' });
    [this.list, this.next] = [[...(this.list ?? []), ...page.items], page.next_cursor ?? null];
  }

  async #look(): Promise<void> {
    try {
      const page = await reconcilesOf(this.pipeline, { limit: PAGE });
      [this.list, this.next, this.error] = [page.items, page.next_cursor ?? null, null];
    } catch (error) {
      this.error = error;
    }
  }
}
