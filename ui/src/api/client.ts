// One way to call the API: the token goes with every call, failures become a Problem, and who is told to wait, waits.

import { Problem, Unreachable } from './problem';

const BASE = '/api/v1';
/** Calls that are told "too many" are tried again so often. */
const MOST_WAITS = 5;

let token: string | null = null;
let onUnauthorized: () => void = () => {};

export function useToken(value: string | null, unauthorized: () => void): void {
  token = value;
  onUnauthorized = unauthorized;
}

export interface Asked {
  query?: Record<string, string | number | boolean | null | undefined> | undefined;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

export interface Answer<T> {
  data: T;
  etag: string | null;
}

export async function call<T>(method: string, path: string, asked: Asked = {}): Promise<T> {
  return (await ask<T>(method, path, asked)).data;
}

export async function ask<T>(method: string, path: string, asked: Asked = {}): Promise<Answer<T>> {
  const response = await send(method, path, asked);
  if (!response.ok) throw await problem(response);
  const data = response.status === 204 ? undefined : await response.json();
  return { data: data as T, etag: response.headers.get('etag') };
}

/** The body as a file. */
export async function download(path: string, asked: Asked): Promise<Blob> {
  const response = await send('GET', path, asked);
  if (!response.ok) throw await problem(response);
  return response.blob();
}

/** The raw answer, for what is read as a stream. */
export async function send(method: string, path: string, asked: Asked, waited = 0): Promise<Response> {
  const headers = new Headers(asked.headers);
  if (token !== null) headers.set('authorization', `Bearer ${token}`);
  const init: RequestInit = { method, headers, signal: asked.signal ?? null };
  if (asked.body !== undefined) {
    headers.set('content-type', 'application/json');
    init.body = JSON.stringify(asked.body);
  }
  const response = await fetch(address(path, asked.query), init).catch((error: unknown) => {
    if (asked.signal?.aborted) throw error;
    throw new Unreachable(String(error));
  });
  if (response.status === 429 && waited < MOST_WAITS) {
    const seconds = Number(response.headers.get('retry-after') ?? '1');
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    return send(method, path, asked, waited + 1);
  }
  if (response.status === 401) onUnauthorized();
  return response;
}

function address(path: string, query: Asked['query']): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== '') parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `${BASE}${path}${text ? `?${text}` : ''}`;
}

async function problem(response: Response): Promise<Problem> {
  const document = await response.json().catch(() => ({}));
  return new Problem(response.status, document);
}
