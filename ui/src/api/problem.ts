// What the API says when a call fails (RFC 9457), as an error that can be thrown and shown.

import type { components } from './schema';

type Document = components['schemas']['Problem'];
export type Fault = components['schemas']['Fault'];

export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint: string | null;
  readonly faults: Fault[];
  readonly requestId: string | null;
  readonly currentVersion: number | null;

  constructor(status: number, document: Partial<Document>) {
    super(document.detail ?? document.title ?? `HTTP ${status}`);
    this.status = status;
    this.code = document.code ?? 'unknown';
    this.hint = document.hint ?? null;
    this.faults = document.errors ?? [];
    this.requestId = document.request_id ?? null;
    this.currentVersion = document.current_version ?? null;
  }
}

/** The server was not reached at all. */
export class Unreachable extends Error {}

/** Messages of runs end with a `hint: …` line, as all messages of this house do. */
export function splitHint(message: string): { detail: string; hint: string | null } {
  const at = message.indexOf('\nhint: ');
  return at < 0 ? { detail: message, hint: null } : { detail: message.slice(0, at), hint: message.slice(at + 7) };
}
