// All pipelines, as the list and the palette show them, kept up by events. Events tell of runs and verdicts; how a
// pipeline stands then is asked for, never guessed.

import {
  MOST_IN_A_PAGE,
  eachPipeline,
  pipelineStatus,
  runners,
  runs,
  type Pipeline,
  type PipelineStatus,
  type Run,
} from '../api/calls';
import { events } from '../api/events.svelte';
import { Problem } from '../api/problem';
import { KeptUp } from './load.svelte';

/** More changes at once than this, and the whole list is asked for instead. */
const FEW = 10;
const REFRESH = 30_000;
const STRIP = 12;
/** More than a screen shows at once, and little enough to be there at once. */
const FIRST_PAGE = 40;

class Pipelines {
  list = $state.raw<Pipeline[]>([]);
  /** Of each pipeline the newest runs, oldest first. */
  recent = $state.raw(new Map<string, Run[]>());
  /** There is something to show. */
  loaded = $state(false);
  /** There is everything. */
  complete = $state(false);
  error = $state.raw<unknown>(null);
  /** Null until it is known. */
  livingRunners = $state<number | null>(null);
  #all = false;
  #changed = new Set<string>();
  #kept = new KeptUp(() => this.#ask());

  /** Answers how to stop following. */
  follow(): () => void {
    void this.refresh();
    const stop = events.listen((event) => {
      if (event.topic === 'reset') return void this.refresh();
      if (event.topic === 'run.progress') this.#progress(event.data);
      if (event.topic === 'run.status') this.#remember([event.data]);
      if (event.topic !== 'run.status' && !(event.topic === 'reconcile.status' && event.data.verdict)) return;
      this.#changed.add(event.data.pipeline_id);
      this.#kept.lookSoon();
    });
    const timer = setInterval(() => void this.refresh(), REFRESH);
    return () => {
      stop();
      clearInterval(timer);
    };
  }

  /** How all of them stand. */
  refresh(): Promise<void> {
    this.#all = true;
    return this.#kept.look();
  }

  /** How this one stands. */
  look(id: string): Promise<void> {
    this.#changed.add(id);
    return this.#kept.look();
  }

  async #ask(): Promise<void> {
    const ids = [...this.#changed];
    this.#changed.clear();
    const unknown = ids.some((id) => !this.list.some((pipeline) => pipeline.id === id));
    const all = this.#all || unknown || ids.length > FEW;
    this.#all = false;
    await (all ? this.#askAll() : this.#askSome(ids));
  }

  async #askAll(): Promise<void> {
    try {
      const before = new Map(this.list.map((pipeline) => [pipeline.id, pipeline]));
      const gathered: Pipeline[] = [];
      await eachPipeline(this.complete ? MOST_IN_A_PAGE : FIRST_PAGE, (page) => {
        gathered.push(...page.map((pipeline) => unchanged(before.get(pipeline.id), pipeline)));
        if (!this.complete) this.list = [...gathered];
        this.loaded = true;
      });
      [this.list, this.complete, this.error] = [gathered, true, null];
      await Promise.all([this.#lookAtRuns(), this.#lookAtRunners()]);
    } catch (error) {
      this.error = error;
    }
  }

  async #askSome(ids: string[]): Promise<void> {
    try {
      const answers = await Promise.all(ids.map((id) => pipelineStatus(id).catch(gone)));
      const statuses = new Map(answers.filter((status) => status !== null).map((status) => [status.id, status]));
      this.list = this.list.map((pipeline) => merged(pipeline, statuses.get(pipeline.id)));
    } catch (error) {
      this.error = error;
    }
  }

  async #lookAtRuns(): Promise<void> {
    const page = await runs({ limit: 500 });
    this.recent = new Map();
    this.#remember([...page.items].reverse());
  }

  async #lookAtRunners(): Promise<void> {
    this.livingRunners = (await runners()).items.filter((runner) => runner.alive && runner.status === 'READY').length;
  }

  #remember(news: Run[]): void {
    const recent = new Map(this.recent);
    for (const run of news) {
      const others = (recent.get(run.pipeline_id) ?? []).filter((other) => other.id !== run.id);
      recent.set(run.pipeline_id, [...others, run].slice(-STRIP));
    }
    this.recent = recent;
  }

  #progress(run: Run): void {
    this.list = this.list.map((pipeline) =>
      pipeline.id === run.pipeline_id && pipeline.last_run?.id === run.id ? { ...pipeline, last_run: run } : pipeline,
    );
  }
}

/** The object that is shown already, where nothing of it has changed: its row is left alone. */
function unchanged(before: Pipeline | undefined, now: Pipeline): Pipeline {
  return before && JSON.stringify(before) === JSON.stringify(now) ? before : now;
}

function merged(pipeline: Pipeline, status: PipelineStatus | undefined): Pipeline {
  if (!status) return pipeline;
  const { enabled, last_run, next_run_at, schedule_error, freshness, last_reconcile } = status;
  const { next_full_run_at, full_schedule_error, waiting } = status;
  const active_run = status.active_run?.id ?? null;
  const news = { enabled, last_run, next_run_at, schedule_error, freshness, last_reconcile, active_run };
  return { ...pipeline, status: status.status, ...news, next_full_run_at, full_schedule_error, waiting };
}

/** Deleted meanwhile. */
function gone(error: unknown): null {
  if (error instanceof Problem && error.status === 404) return null;
  throw error;
}

export const pipelines = new Pipelines();
