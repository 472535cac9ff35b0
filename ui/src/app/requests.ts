// What can be asked of a pipeline, done. What the answer says is shown at once.

import { cancel, pause, pipelineStatus, run, type RunOrder } from '../api/calls';
import { pipelines } from './pipelines.svelte';
import type { Request } from './standing';

const calls: Record<Request, (name: string, order: RunOrder) => Promise<unknown>> = {
  run,
  resume: run,
  pause: (name) => pause(name),
  cancel: (name) => cancel(name),
};

export async function perform(request: Request, name: string, order: RunOrder = {}): Promise<void> {
  await calls[request](name, order);
  pipelines.put(await pipelineStatus(name));
}
