// A configuration that is being written: from a saved pipeline or from nothing, and what of it has changed.

import type { PipelineConfig, PipelineDetail } from '../api/calls';

export type Draft = PipelineConfig;

export const fresh: Draft = {
  name: '',
  target_table: 'analytics.',
  description: '',
  tags: [],
  type: 'SQL',
  source_type: 'postgres',
  source_connection: 'source',
  source_query: 'select ',
  mode: 'full',
  batch_size: 1000,
};

/** All fields that a pipeline is configured by. */
const fields = [
  'name',
  'target_table',
  'shared_value',
  'description',
  'tags',
  'type',
  'source_type',
  'source_connection',
  'source_table',
  'source_query',
  'mode',
  'batch_size',
  'enabled',
  'schedule_interval',
  'full_schedule',
  'reconcile_schedule',
  'incremental_key',
  'incremental_id_key',
  'capture',
  'change_key',
  'watch',
  'late_window_seconds',
  'delete_limit',
  'reject_limit',
  'freshness_limit_seconds',
  'read',
  'first_load',
  'on_change',
  'python_task',
  'tasks',
] as const satisfies (keyof PipelineConfig & keyof PipelineDetail)[];

export function draftOf(pipeline: PipelineDetail): Draft {
  return structuredClone(Object.fromEntries(fields.map((field) => [field, pipeline[field]])) as unknown as Draft);
}

/** A merge-patch: only what differs. What was emptied is null, which sets it back to its default. */
export function patchOf(draft: Draft, pipeline: PipelineDetail): Record<string, unknown> {
  const changed = fields.filter(
    (field) => JSON.stringify(draft[field] ?? null) !== JSON.stringify(pipeline[field] ?? null),
  );
  return Object.fromEntries(changed.map((field) => [field, draft[field] ?? null]));
}
