// Findings about a draft, asked for while it is written: a moment after the last key, and only the newest answer counts.

import {
  explain,
  preview,
  validate,
  type Check,
  type Explanation,
  type PipelineConfig,
  type Preview,
} from '../api/calls';
import { Problem, type Fault } from '../api/problem';

const PAUSE = 500;

export class Checking {
  checks = $state.raw<Check[]>([]);
  /** Whether the draft may be saved; null while that is not known. */
  ok = $state<boolean | null>(null);
  busy = $state(false);
  error = $state.raw<unknown>(null);
  preview = $state.raw<Preview | null>(null);
  explanation = $state.raw<Explanation | null>(null);
  #ask: (draft: PipelineConfig, signal: AbortSignal) => Promise<{ ok: boolean; checks: Check[] }>;
  #stop: AbortController | null = null;

  constructor(ask: typeof validate = validate) {
    this.#ask = ask;
  }

  /** Answers how to give up. */
  soon(draft: PipelineConfig): () => void {
    this.ok = null;
    const timer = setTimeout(() => void this.now(draft), PAUSE);
    return () => clearTimeout(timer);
  }

  async now(draft: PipelineConfig): Promise<void> {
    this.#stop?.abort();
    const stop = (this.#stop = new AbortController());
    this.busy = true;
    try {
      const verdict = await this.#ask(draft, stop.signal);
      [this.checks, this.ok, this.error] = [verdict.checks, verdict.ok, null];
    } catch (error) {
      if (stop.signal.aborted) return;
      this.refused(error);
    }
    if (this.#stop === stop) this.busy = false;
  }

  async look(draft: PipelineConfig): Promise<void> {
    this.busy = true;
    try {
      [this.preview, this.error] = [await preview(draft), null];
    } catch (error) {
      this.preview = null;
      this.refused(error);
    }
    this.busy = false;
  }

  async explain(draft: PipelineConfig): Promise<void> {
    this.busy = true;
    try {
      [this.explanation, this.error] = [await explain(draft), null];
    } catch (error) {
      this.explanation = null;
      this.refused(error);
    }
    this.busy = false;
  }

  /** A refusal that names fields stands beside them. */
  refused(error: unknown): void {
    if (error instanceof Problem && error.faults.length > 0) {
      [this.checks, this.ok, this.error] = [error.faults.map(asCheck), false, null];
    } else [this.error, this.ok] = [error, false];
  }
}

/** Where a fault is within `{"pipeline": …}`, a check is within the pipeline. */
function asCheck({ pointer, code, detail, line, column, hint }: Fault): Check {
  const field = pointer.replace(/^\/pipeline(?=\/|$)/, '');
  return { field, code, detail, severity: 'error', line: line ?? null, column: column ?? null, hint: hint ?? null };
}
