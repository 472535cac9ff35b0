// What can be asked of a pipeline, done. What the answer says is shown at once.

import { cancel, pause, pipelineStatus, run } from '../api/calls';
import { pipelines } from './pipelines.svelte';
import type { Request } from './standing';

const calls: Record<Request, (name: string) => Promise<unknown>> = { run, resume: run, pause, cancel };

export async function perform(request: Request, name: string): Promise<void> {
  await calls[request](name);
  pipelines.put(await pipelineStatus(name));
}
