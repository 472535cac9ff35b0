// Which pipelines the list shows, and in which order.

import type { Pipeline } from '../../api/calls';
import { isLate } from '../../app/standing';

export const kinds = ['all', 'failed', 'differs', 'late', 'running', 'waiting', 'paused', 'idle', 'disabled'] as const;
export type Kind = (typeof kinds)[number];

export interface Choice {
  q: string;
  tag: string | null;
  kind: Kind;
}

const is: Record<Kind, (pipeline: Pipeline, now: number) => boolean> = {
  all: () => true,
  failed: ({ status }) => status === 'FAILED',
  differs: ({ last_reconcile }) => last_reconcile?.verdict === 'differs',
  late: ({ freshness }, now) => isLate(freshness, now),
  running: ({ status }) => status === 'RUNNING' || status === 'PAUSE_REQUESTED',
  waiting: ({ status }) => status === 'RUN_REQUESTED',
  paused: ({ status }) => status === 'PAUSED',
  idle: ({ status, enabled }) => status === 'IDLE' && enabled,
  disabled: ({ enabled }) => !enabled,
};

export function choose(list: Pipeline[], { q, tag, kind }: Choice, now: number): Pipeline[] {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (pipeline: Pipeline) => {
    const text = `${pipeline.name} ${pipeline.target} ${pipeline.description} ${pipeline.tags.join(' ')}`.toLowerCase();
    return words.every((word) => text.includes(word)) && (!tag || pipeline.tags.includes(tag));
  };
  const wanted = is[kind] ?? is.all;
  return list.filter((pipeline) => wanted(pipeline, now) && (words.length + Number(!!tag) === 0 || fits(pipeline)));
}

/** What needs somebody comes first. */
const urgency = ['FAILED', 'PAUSED', 'PAUSE_REQUESTED', 'RUNNING', 'RUN_REQUESTED', 'IDLE'];

/** Never compared is worth more attention than equal. */
const verdicts = ['differs', 'stale', undefined, 'equal'];

const keys: Record<string, (pipeline: Pipeline) => number | string> = {
  name: ({ name }) => name.toLowerCase(),
  status: ({ status }) => urgency.indexOf(status),
  // The longest behind its limit first, then what has no limit, then what has never ended a pass.
  freshness: ({ freshness: { lag_seconds, limit_seconds } }) =>
    lag_seconds == null ? 1e18 : limit_seconds ? -lag_seconds / limit_seconds : 1e12 - lag_seconds,
  verdict: ({ last_reconcile }) => verdicts.indexOf(last_reconcile?.verdict),
  last_run: ({ last_run }) => (last_run ? -Date.parse(last_run.requested_at) : 0),
};

export function sorted(list: Pipeline[], sort: string): Pipeline[] {
  const [name, sign] = sort.startsWith('-') ? [sort.slice(1), -1] : [sort, 1];
  const key = keys[name];
  if (!key) return list;
  const pairs = list.map((pipeline) => [key(pipeline), pipeline] as const);
  pairs.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
  return pairs.map(([, pipeline]) => pipeline);
}
