// What can be asked of a pipeline, done; and how it stands then, shown.

import { cancel, pause, run, type Pipeline, type RunOrder } from '../api/calls';
import { pipelines } from './pipelines.svelte';
import type { Request } from './standing';

const calls: Record<Request, (name: string, order: RunOrder) => Promise<unknown>> = {
  run,
  resume: run,
  pause: (name) => pause(name),
  cancel: (name) => cancel(name),
};

export async function perform(request: Request, { id, name }: Pipeline, order: RunOrder = {}): Promise<void> {
  await calls[request](name, order);
  await pipelines.look(id);
}
