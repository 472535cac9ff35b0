// What a pipeline's figures mean for whoever operates it: whether it is late and why, and what can be asked of it now.

import { splitHint } from '../api/problem';
import type { Freshness, Pipeline, Status, Waiting } from '../api/calls';
import { duration, until } from '../format/time';
import { t } from '../i18n/index.svelte';

export type Request = 'run' | 'resume' | 'pause' | 'cancel';

/** As the table of transitions has it; the server has the last word. */
const possible: Record<Status, Request[]> = {
  IDLE: ['run'],
  RUN_REQUESTED: ['pause', 'cancel'],
  RUNNING: ['pause', 'cancel'],
  PAUSE_REQUESTED: ['resume', 'cancel'],
  PAUSED: ['resume', 'cancel'],
  FAILED: ['run'],
};

export function requests(pipeline: { status: Status; enabled: boolean }): Request[] {
  const all = possible[pipeline.status];
  return pipeline.enabled ? all : all.filter((request) => request === 'cancel');
}

export function isLate(freshness: Freshness, now: number): boolean {
  const { as_of, limit_seconds } = freshness;
  return !!as_of && !!limit_seconds && now - Date.parse(as_of) > limit_seconds * 1000;
}

/** The first of the times at which it runs by itself. */
export function nextRun({ next_run_at, next_full_run_at }: Pipeline): string | undefined {
  const times = [next_run_at, next_full_run_at].filter((time) => time != null);
  return times.sort((a, b) => Date.parse(a) - Date.parse(b))[0];
}

/** Why nobody executes what it waits for, in one line. */
export function whyWaits({ message, until: at }: Waiting): string {
  const reason = splitHint(message).detail;
  return at ? t('waits.until', { time: until(at), reason }) : t('waits.reason', { reason });
}

/** Why nothing newer has arrived, in one line. */
export function whyLate(pipeline: Pipeline, livingRunners: number | null): string {
  const run = pipeline.last_run;
  if (pipeline.schedule_error) return t('late.schedule_error', { error: splitHint(pipeline.schedule_error).detail });
  if (!pipeline.enabled) return t('late.disabled');
  switch (pipeline.status) {
    case 'FAILED':
      return t('late.failed', { error: run?.error ? splitHint(run.error).detail : '' });
    case 'PAUSED':
    case 'PAUSE_REQUESTED':
      return t('late.paused');
    case 'RUN_REQUESTED':
      return livingRunners === 0 ? t('late.no_runner') : t('late.waiting');
    case 'RUNNING':
      return t('late.running', { time: run?.started_at ? duration(Date.now() - Date.parse(run.started_at)) : '' });
    case 'IDLE':
      return whyIdle(pipeline, livingRunners);
  }
}

function whyIdle(pipeline: Pipeline, livingRunners: number | null): string {
  const schedule = [pipeline.schedule_interval, pipeline.full_schedule].filter(Boolean).join(', ');
  if (!schedule) return t('late.no_schedule');
  if (livingRunners === 0) return t('late.no_runner');
  const next = nextRun(pipeline);
  return t('late.scheduled', { schedule, time: next ? until(next) : '?' });
}
