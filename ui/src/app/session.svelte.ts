// Who uses the UI: the token, the role that it gives, and what that role may do.

import { whoami, type Caller } from '../api/calls';
import { useToken } from '../api/client';
import { events } from '../api/events.svelte';
import { Problem } from '../api/problem';

const KEY = 'vitrina.token';
const ROLES = ['viewer', 'operator', 'admin'] as const;
export type Role = (typeof ROLES)[number];

class Session {
  caller = $state<Caller | null>(null);
  /** The server wants a token, or a better one. */
  asksForToken = $state(false);
  /** Why the server could not be asked. */
  failure = $state<unknown>(null);
  token = $state<string | null>(null);

  /** Calls that would be refused are not offered. */
  may(role: Role): boolean {
    return this.caller !== null && ROLES.indexOf(this.caller.role as Role) >= ROLES.indexOf(role);
  }

  /** Values of rows are a right of their own. */
  get seesRows(): boolean {
    return this.caller?.sees_rows ?? false;
  }

  /** The tags whose pipelines the token is for; none where it is for all of them. */
  get scope(): string[] | null {
    return this.caller?.tags ?? null;
  }

  async start(): Promise<void> {
    this.#use(sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY));
    await this.#identify();
  }

  /** Answers whether the token is good; only such a one is kept. */
  async enter(token: string, keep: boolean): Promise<boolean> {
    this.#use(token);
    if (!(await this.#identify()) || this.token !== token) return false;
    sessionStorage.setItem(KEY, token);
    if (keep) localStorage.setItem(KEY, token);
    return true;
  }

  leave(): void {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    this.#use(null);
    this.caller = null;
    events.stop();
    void this.#identify();
  }

  #use(token: string | null): void {
    this.token = token;
    useToken(token, () => (this.asksForToken = true));
  }

  async #identify(): Promise<boolean> {
    try {
      this.caller = await whoami();
    } catch (error) {
      this.caller = null;
      // A server that has become open refuses the tokens it once knew.
      if (error instanceof Problem && error.status === 401 && this.token !== null) {
        this.#use(null);
        return this.#identify();
      }
      if (error instanceof Problem && error.status === 401) this.asksForToken = true;
      else this.failure = error;
      return false;
    }
    this.asksForToken = false;
    this.failure = null;
    events.start();
    return true;
  }
}

export const session = new Session();
