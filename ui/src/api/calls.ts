// The calls that the UI makes, by name. Their shapes come from the OpenAPI document.

import { ask, call, download, type Answer } from './client';
import type { components } from './schema';

type Schemas = components['schemas'];
export type Attempt = Schemas['Attempt'];
export type AuditEntry = Schemas['AuditEntry'];
export type Batch = Schemas['Batch'];
export type Caller = Schemas['Caller'];
export type Check = Schemas['Check'];
export type CheckpointVersion = Schemas['CheckpointVersion'];
export type Connection = Schemas['Connection'];
export type ConnectionTest = Schemas['ConnectionTest'];
export type Difference = Schemas['Difference'];
export type DifferenceKind = Schemas['DifferenceKind'];
export type Explanation = Schemas['Explanation'];
export type Freshness = Schemas['Freshness'];
export type Health = Schemas['Health'];
export type LastReconcile = Schemas['LastReconcile'];
export type Level = Schemas['ReconcileLevel'];
export type LogLine = Schemas['LogLine'];
export type Pipeline = Schemas['PipelineSummary'];
export type PipelineConfig = Schemas['PipelineConfig'];
export type PipelineDetail = Schemas['PipelineDetail'];
export type PipelineState = Schemas['PipelineState'];
export type PipelineStatus = Schemas['PipelineStatus'];
export type Plan = Schemas['Plan'];
export type Preview = Schemas['Preview'];
export type PythonTask = Schemas['PythonTask'];
export type QueryPlan = Schemas['QueryPlan'];
export type Reconcile = Schemas['Reconcile'];
export type ReconcileOrder = Partial<Schemas['ReconcileOrder']>;
export type ReconcileStatus = Schemas['ReconcileStatus'];
export type ReconcileVerdict = Schemas['ReconcileVerdict'];
export type Reject = Schemas['Reject'];
export type RejectOrder = Schemas['RejectOrder'];
export type Rejects = Schemas['Rejects'];
export type Repair = Schemas['Repair'];
export type RepairAccepted = Schemas['RepairAccepted'];
export type RetryAccepted = Schemas['RetryAccepted'];
export type Row = Schemas['Row'];
export type RowLook = Schemas['RowLook'];
export type Run = Schemas['Run'];
export type RunAccepted = Schemas['RunAccepted'];
export type RunDetail = Schemas['RunDetail'];
export type RunMetrics = Schemas['RunMetrics'];
export type RunOrder = Schemas['RunOrder'];
export type Runner = Schemas['Runner'];
export type RunStatus = Schemas['RunStatus'];
export type StateForecast = Schemas['StateForecast'];
export type SourceSchema = Schemas['SourceSchema'];
export type Standing = Schemas['Standing'];
export type Status = Schemas['Status'];
export type TargetConfig = Schemas['TargetConfig'];
export type TargetDetail = Schemas['TargetDetail'];
export type TargetStanding = Schemas['TargetStanding'];
export type Verdict = Schemas['Verdict'];
export type Waiting = Schemas['Waiting'];
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

export const MOST_IN_A_PAGE = 500;

/** A new value for each click: a repeated request must not become a second run. */
function idempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

const of = (pipeline: string) => `/pipelines/${encodeURIComponent(pipeline)}`;

export const whoami = () => call<Caller>('GET', '/whoami');
export const health = () => call<Health>('GET', '/health');
export const version = () => call<Schemas['Version']>('GET', '/version');

/** All pipelines, page by page; each page is handed over as it comes, the first one of this size. */
export async function eachPipeline(first: number, take: (page: Pipeline[]) => void): Promise<void> {
  let limit = first;
  let cursor: string | null | undefined;
  do {
    const page: Page<Pipeline> = await call('GET', '/pipelines', { query: { limit, cursor } });
    take(page.items);
    [limit, cursor] = [MOST_IN_A_PAGE, page.next_cursor];
  } while (cursor);
}

export const pipeline = (name: string): Promise<Answer<PipelineDetail>> => ask('GET', of(name));
export const pipelineStatus = (name: string) => call<PipelineStatus>('GET', `${of(name)}/status`);
export const createPipeline = (config: PipelineConfig) => call<PipelineDetail>('POST', '/pipelines', { body: config });
export const editPipeline = (name: string, patch: object, etag: string): Promise<Answer<PipelineDetail>> =>
  ask('PATCH', of(name), { body: patch, headers: { 'if-match': etag } });
export const deletePipeline = (name: string, etag: string) =>
  call<void>('DELETE', of(name), { headers: { 'if-match': etag } });

export const run = (name: string, order: RunOrder = {}) =>
  call<RunAccepted>('POST', `${of(name)}/run`, { body: order, headers: { 'idempotency-key': idempotencyKey() } });
export const pause = (name: string) => call<PipelineStatus>('POST', `${of(name)}/pause`);
export const cancel = (name: string) => call<PipelineStatus>('POST', `${of(name)}/cancel`);
export const enable = (name: string) => call<PipelineStatus>('POST', `${of(name)}/enable`);
export const disable = (name: string) => call<PipelineStatus>('POST', `${of(name)}/disable`);

export const validate = (config: PipelineConfig, signal?: AbortSignal) =>
  call<Verdict>('POST', '/validate', { body: { pipeline: config }, signal });
export const preview = (config: PipelineConfig) =>
  call<Preview>('POST', '/preview', { query: { limit: 20 }, body: { pipeline: config } });
export const explain = (config: PipelineConfig) =>
  call<Explanation>('POST', '/explain', { body: { pipeline: config } });
export const plan = (config: PipelineConfig) => call<Plan>('POST', '/plan', { body: { pipelines: [config] } });

export const findRow = (name: string, key: string) => call<Row>('GET', `${of(name)}/row`, { query: { key } });

export const runs = (query: { status?: string; limit?: number; cursor?: string } = {}) =>
  call<Page<Run>>('GET', '/runs', { query });
export const runsOf = (name: string, query: { status?: string; limit?: number; cursor?: string } = {}) =>
  call<Page<Run>>('GET', `${of(name)}/runs`, { query });
export const runDetail = (id: string) => call<RunDetail>('GET', `/runs/${id}`);
export const batches = (id: string, cursor?: string) =>
  call<Page<Batch>>('GET', `/runs/${id}/batches`, { query: { limit: 500, cursor } });
export const logs = (id: string, query: { cursor?: string | undefined; wait?: number }, signal?: AbortSignal) =>
  call<Page<LogLine>>('GET', `/runs/${id}/logs`, { query: { limit: 500, ...query }, signal });
export const metrics = (name: string, window: string) =>
  call<RunMetrics>('GET', `${of(name)}/metrics`, { query: { window } });

export const rejects = (name: string, query: { code?: string | undefined; cursor?: string | undefined }) =>
  call<Rejects>('GET', `${of(name)}/rejects`, { query: { limit: 100, ...query } });
export const retryRejects = (name: string, order: RejectOrder) =>
  call<RetryAccepted>('POST', `${of(name)}/rejects/retry`, { body: order });
export const acknowledgeRejects = (name: string, order: RejectOrder) =>
  call<Schemas['RejectsChanged']>('POST', `${of(name)}/rejects/acknowledge`, { body: order });
export const discardRejects = (name: string, order: RejectOrder) =>
  call<Schemas['RejectsChanged']>('POST', `${of(name)}/rejects/discard`, { body: order });

export const requestReconcile = (name: string, order: ReconcileOrder) =>
  call<Reconcile>('POST', `${of(name)}/reconcile`, { body: order });
export const standing = (name: string) => call<Standing>('GET', `${of(name)}/reconcile`);
export const reconcilesOf = (name: string, query: { limit?: number; cursor?: string } = {}) =>
  call<Page<Reconcile>>('GET', `${of(name)}/reconciles`, { query });
export const reconcile = (id: string) => call<Reconcile>('GET', `/reconciles/${id}`);
export const cancelReconcile = (id: string) => call<Reconcile>('POST', `/reconciles/${id}/cancel`);
export const differences = (id: string, query: { kind?: string; cursor?: string }) =>
  call<Page<Difference>>('GET', `/reconciles/${id}/differences`, { query: { limit: 100, ...query } });
export const forecastRepair = (id: string) =>
  call<Repair>('POST', `/reconciles/${id}/repair`, { query: { dry_run: true } });
export const repair = (id: string) => call<RepairAccepted>('POST', `/reconciles/${id}/repair`);
/** All of them as a file; one that breaks off is refused. */
export const downloadDifferences = (id: string, query: { kind?: string; format: 'ndjson' | 'csv' }) =>
  download(`/reconciles/${id}/differences`, { query });

export type StateChange = { reset: true } | { restore: number } | { position: { done: Record<string, unknown> } };
export const state = (name: string): Promise<Answer<PipelineState>> => ask('GET', `${of(name)}/state`);
export const stateHistory = (name: string) => call<Page<CheckpointVersion>>('GET', `${of(name)}/state/history`);
export const forecastState = (name: string, change: StateChange, etag: string) =>
  changed<StateForecast>(name, change, etag, true);
export const changeState = (name: string, change: StateChange, etag: string) =>
  changed<PipelineState>(name, change, etag, false);

function changed<T>(name: string, change: StateChange, etag: string, dryRun: boolean): Promise<T> {
  const asked = { query: { dry_run: dryRun || undefined }, headers: { 'if-match': etag } };
  if ('reset' in change) return call('POST', `${of(name)}/state/reset`, asked);
  return call('PATCH', `${of(name)}/state`, { ...asked, body: change });
}

export const targets = () => call<Page<TargetDetail>>('GET', '/targets');
const described = (target: string) => `/targets/${encodeURIComponent(target)}`;
export const target = (name: string): Promise<Answer<TargetDetail>> => ask('GET', described(name));
export const targetStanding = (name: string, pipeline?: string) =>
  call<TargetStanding>('GET', `${described(name)}/standing`, { query: { pipeline } });
export const planTarget = (name: string, config: TargetConfig) =>
  call<Plan>('POST', '/plan', { body: { targets: [{ name, ...config }] } });
export const putTarget = (name: string, config: TargetConfig, etag: string) =>
  call<TargetDetail>('PUT', described(name), { body: config, headers: { 'if-match': etag } });
export const connections = () => call<Page<Connection>>('GET', '/connections');
export const sourceSchema = (name: string) =>
  call<SourceSchema>('GET', `/connections/${encodeURIComponent(name)}/schema`);
export const testConnection = (name: string) =>
  call<ConnectionTest>('POST', `/connections/${encodeURIComponent(name)}/test`);
export const runners = () => call<Page<Runner>>('GET', '/runners');
export const drain = (name: string) => call<Runner>('POST', `/runners/${encodeURIComponent(name)}/drain`);
export const pythonTasks = () => call<Page<PythonTask>>('GET', '/python-tasks');
export const audit = (cursor?: string) => call<Page<AuditEntry>>('GET', '/audit', { query: { limit: 100, cursor } });
export const validateSaved = (name: string, patch: object, signal?: AbortSignal) =>
  call<Verdict>('POST', `${of(name)}/validate`, { body: patch, signal });
