// What came of an action, told once and then gone. Failures stay until they are read.

import { t } from '../i18n/index.svelte';
import { Problem, Unreachable } from '../api/problem';

export interface Notice {
  id: number;
  kind: 'done' | 'failed';
  text: string;
  hint: string | null;
}

const LIFETIME = 4000;

class Notices {
  list = $state<Notice[]>([]);
  #next = 1;

  done(text: string): void {
    const id = this.#add('done', text, null);
    setTimeout(() => this.dismiss(id), LIFETIME);
  }

  failed(error: unknown): void {
    const { text, hint } = words(error);
    this.#add('failed', text, hint);
  }

  dismiss(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }

  #add(kind: Notice['kind'], text: string, hint: string | null): number {
    const id = this.#next++;
    this.list = [...this.list.slice(-3), { id, kind, text, hint }];
    return id;
  }
}

/** An error as people read it. */
export function words(error: unknown): { text: string; hint: string | null } {
  if (error instanceof Problem) {
    const text = [error.message, ...error.faults.map((fault) => fault.detail)].join('\n');
    return { text, hint: error.hint ?? error.faults[0]?.hint ?? null };
  }
  if (error instanceof Unreachable) return { text: t('error.unreachable'), hint: t('error.unreachable_hint') };
  return { text: error instanceof Error ? error.message : String(error), hint: null };
}

export const notices = new Notices();

/** Does it, and tells how it went. */
export async function attempt<T>(action: () => Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await action();
    if (done) notices.done(done);
    return result;
  } catch (error) {
    notices.failed(error);
    return undefined;
  }
}
