// One stream of server-sent events for the whole UI. EventSource cannot send a token, so the stream is read by fetch; it
// goes on by Last-Event-ID where it broke off, as it does every five minutes.

import { send } from './client';
import type { Batch, Reconcile, Run } from './calls';

export interface PipelineSucceeded {
  pipeline_id: string;
  pipeline: string;
}

export type Event =
  | { topic: 'run.status' | 'run.progress'; data: Run }
  | { topic: 'reconcile.status' | 'reconcile.progress'; data: Reconcile }
  | { topic: 'batch.done'; data: { run_id: string; pipeline_id: string; batch: Batch } }
  | { topic: 'pipeline.freshness'; data: PipelineSucceeded }
  /** Events were missed: what is shown must be asked for again. */
  | { topic: 'reset' };

type Listener = (event: Event) => void;

const SHORTEST_WAIT = 500;
const LONGEST_WAIT = 15_000;

class Stream {
  /** Whether what is on the screen follows what happens. */
  live = $state(false);
  #listeners = new Set<Listener>();
  #last: string | null = null;
  #stop: AbortController | null = null;

  /** Answers how to stop listening. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    this.stop();
    const stop = new AbortController();
    this.#stop = stop;
    void this.#work(stop.signal);
  }

  stop(): void {
    this.#stop?.abort();
    this.#stop = null;
    this.#last = null;
    this.live = false;
  }

  async #work(signal: AbortSignal): Promise<void> {
    let wait = SHORTEST_WAIT;
    while (!signal.aborted) {
      try {
        await this.#read(signal);
        wait = SHORTEST_WAIT;
      } catch {
        if (signal.aborted) return;
        this.live = false;
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, LONGEST_WAIT);
      }
    }
  }

  async #read(signal: AbortSignal): Promise<void> {
    const headers: Record<string, string> = this.#last === null ? {} : { 'last-event-id': this.#last };
    const response = await send('GET', '/events', { headers, signal });
    if (!response.ok || response.body === null) throw new Error(`HTTP ${response.status}`);
    this.live = true;
    // Without an id to go on from, what happened since the screen was asked for is unknown.
    if (this.#last === null) this.#tell({ topic: 'reset' });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const messages = (rest + value).split('\n\n');
      rest = messages.pop() ?? '';
      messages.forEach((message) => this.#take(message));
    }
  }

  #take(message: string): void {
    const fields = new Map<string, string>();
    for (const line of message.split('\n')) {
      const colon = line.indexOf(':');
      if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1).trimStart());
    }
    const [topic, data] = [fields.get('event'), fields.get('data')];
    this.#last = fields.get('id') ?? this.#last;
    if (topic !== undefined) this.#tell({ topic, data: JSON.parse(data ?? '{}') } as Event);
  }

  #tell(event: Event): void {
    this.#listeners.forEach((listener) => listener(event));
  }
}

export const events = new Stream();
