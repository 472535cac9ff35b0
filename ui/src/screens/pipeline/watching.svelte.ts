// One run and its batches, kept up by events.

import { batches, runDetail, type Batch, type Run, type RunDetail } from '../../api/calls';
import { events } from '../../api/events.svelte';
import { KeptUp } from '../../app/load.svelte';

/** More batches than this are not drawn. */
const MOST = 5000;

export class Watching {
  readonly id: string;
  run = $state.raw<RunDetail | null>(null);
  batches = $state.raw<Batch[]>([]);
  error = $state.raw<unknown>(null);

  constructor(id: string) {
    this.id = id;
  }

  /** Answers how to stop. */
  follow(): () => void {
    const kept = new KeptUp(() => this.#look());
    void kept.look();
    return events.listen((event) => {
      if (event.topic === 'reset') kept.lookSoon();
      else if (event.topic === 'batch.done' && event.data.run_id === this.id) this.#add([event.data.batch]);
      else if (event.topic === 'run.progress' && event.data.id === this.id) kept.take(() => this.#progress(event.data));
      else if (event.topic === 'run.status' && event.data.id === this.id) kept.lookSoon();
    });
  }

  async #look(): Promise<void> {
    try {
      this.run = await runDetail(this.id);
      this.error = null;
      let cursor = this.batches.at(-1)?.id.toString();
      do {
        const page = await batches(this.id, cursor);
        this.#add(page.items);
        cursor = page.next_cursor ?? undefined;
      } while (cursor && this.batches.length < MOST);
    } catch (error) {
      this.error = error;
    }
  }

  #progress(news: Run): void {
    if (this.run) this.run = { ...this.run, ...news };
  }

  #add(news: Batch[]): void {
    const last = this.batches.at(-1)?.id ?? 0;
    const unseen = news.filter((batch) => batch.id > last);
    if (unseen.length > 0) this.batches = [...this.batches, ...unseen];
  }
}
