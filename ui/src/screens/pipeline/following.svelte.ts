// One pipeline as its screen shows it, kept up by events.

import { pipeline, rejects, type Pipeline, type PipelineDetail, type Run } from '../../api/calls';
import { events } from '../../api/events.svelte';
import { KeptUp } from '../../app/load.svelte';

const REFRESH = 30_000;

export class Following {
  readonly name: string;
  pipeline = $state.raw<PipelineDetail | null>(null);
  etag = $state<string | null>(null);
  error = $state.raw<unknown>(null);
  /** How many rows are refused and neither mended nor forgotten. */
  rejects = $state(0);

  constructor(name: string) {
    this.name = name;
  }

  /** Answers how to stop following. */
  follow(): () => void {
    void this.refresh();
    const stop = events.listen((event) => {
      if (event.topic === 'reset') return this.#kept.lookSoon();
      if ((event.topic === 'run.status' || event.topic === 'reconcile.status') && event.data.pipeline === this.name)
        this.#kept.lookSoon();
      if (event.topic === 'run.progress' && event.data.pipeline === this.name)
        this.#kept.take(() => this.#progress(event.data));
    });
    const timer = setInterval(this.#kept.lookSoon, REFRESH);
    return () => {
      stop();
      clearInterval(timer);
    };
  }

  readonly #kept = new KeptUp(() => this.#ask());
  readonly refresh = this.#kept.look;

  async #ask(): Promise<void> {
    try {
      const answer = await pipeline(this.name);
      [this.pipeline, this.etag, this.error] = [answer.data, answer.etag, null];
      const { groups } = await rejects(this.name, {});
      this.rejects = groups.reduce((sum, group) => sum + group.rejects, 0);
    } catch (error) {
      this.error = error;
    }
  }

  /** A configuration that this screen has just saved. What is being asked may still answer the one before. */
  put(saved: PipelineDetail, etag: string | null): void {
    [this.pipeline, this.etag] = [saved, etag];
    void this.refresh();
  }

  #progress(run: Run): void {
    if (this.pipeline?.last_run?.id === run.id) this.pipeline = { ...this.pipeline, last_run: run };
  }
}

export type { Pipeline };
