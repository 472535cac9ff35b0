// What the tests stand on: the server and its database, as whoever started them tells, and verbs.

import AxeBuilder from '@axe-core/playwright';
import { expect, test as base, type Page } from '@playwright/test';
import { Client } from 'pg';
import { en } from '../src/i18n/en';
import { ru } from '../src/i18n/ru';
import type { Key } from '../src/i18n/index.svelte';

export type Role = 'viewer' | 'operator' | 'admin';

export function told(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set\nhint: these tests are run by: make test ONLY=in_a_browser`);
  return value;
}

export const token = (role: Role) => told(`VITRINA_TOKEN_${role.toUpperCase()}`);

export class Stand {
  constructor(readonly database: Client) {}

  async sql(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
    return (await this.database.query(text, values)).rows;
  }

  async call(method: string, path: string, body?: unknown): Promise<any> {
    const headers = { authorization: `Bearer ${token('admin')}`, 'content-type': 'application/json' };
    const answer = await fetch(`${told('VITRINA_URL')}/api/v1${path}`, { method, headers, body: JSON.stringify(body) });
    const text = await answer.text();
    expect(answer.ok, `${method} ${path}: ${text}`).toBe(true);
    return text ? JSON.parse(text) : null;
  }

  /** What the search server itself says, or is told behind Vitrina's back. */
  async search(method: string, path: string, body?: unknown): Promise<any> {
    const headers = { 'content-type': 'application/json' };
    const url = `${told('VITRINA_SEARCH_URL')}/${path}`;
    const answer = await fetch(url, { method, headers, body: JSON.stringify(body) });
    const text = await answer.text();
    expect(answer.ok, `${method} ${path}: ${text}`).toBe(true);
    return JSON.parse(text);
  }

  /** A pipeline of 50 films in batches of ten. It has a mart of its own: a mart has one writer. */
  async createPipeline(name: string, more: object = {}): Promise<void> {
    if (name !== 'film_dim' && !('target_table' in more)) await this.createMart(`analytics.${name}`);
    await this.call('POST', '/pipelines', {
      name,
      target_table: `analytics.${name}`,
      source_query: 'select id, title, modified from content.film_work',
      batch_size: 10,
      ...more,
    });
  }

  private async createMart(table: string): Promise<void> {
    await this.sql(`create table if not exists ${table} (like analytics.film_dim including all)`);
    await this.sql(
      `create or replace trigger gate before insert on ${table}
         for each row when (new.id = 25) execute function analytics.gate()`,
    );
  }

  async runToEnd(name: string): Promise<{ id: string; status: string }> {
    const { run_id } = await this.call('POST', `/pipelines/${name}/run`, {});
    return this.call('GET', `/runs/${run_id}?wait=30`);
  }

  async compareToEnd(name: string, order: object = {}): Promise<{ id: string; verdict: string }> {
    const { id } = await this.call('POST', `/pipelines/${name}/reconcile`, order);
    return this.call('GET', `/reconciles/${id}?wait=30`);
  }

  /** As long as it is held, no run gets past film 25. */
  async closeGate(): Promise<void> {
    await this.sql('select pg_advisory_lock(25)');
  }

  async openGate(): Promise<void> {
    await this.sql('select pg_advisory_unlock_all()');
  }
}

export const test = base.extend<{ stand: Stand; as: (role: Role) => Promise<void> }>({
  stand: async ({}, use) => {
    const database = new Client({ connectionString: told('VITRINA_DATABASE_URL') });
    await database.connect();
    await use(new Stand(database));
    await database.end();
  },
  /** Whose token the browser has. */
  as: async ({ page }, use) => {
    await use(async (role) => {
      // A page from nowhere has no storage.
      await page.addInitScript((value) => {
        if (location.protocol !== 'about:') sessionStorage.setItem('vitrina.token', value);
      }, token(role));
    });
  },
});

/** No page may complain, whatever it shows: not of its policy, not of an error. */
test.beforeEach(({ page }) => {
  page.on('pageerror', (error) => {
    throw error;
  });
});

/** Nothing that WCAG 2.2 AA forbids, in either theme. */
export async function expectAccessible(page: Page): Promise<void> {
  for (const theme of ['light', 'dark']) {
    await page.evaluate((value) => (document.documentElement.dataset['theme'] = value), theme);
    const found = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']).analyze();
    const told = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join('\n    ')}`);
    expect(told, theme).toEqual([]);
  }
  await page.evaluate(() => (document.documentElement.dataset['theme'] = 'system'));
}

const russian = new Set<unknown>(Object.values(ru));
/** What an English reader sees and a Russian one does not. */
const onlyEnglish = new Set(
  (Object.keys(en) as Key[]).map((key) => en[key]).filter((word) => typeof word === 'string' && !russian.has(word)),
);

/** No line of the page is English, once the words of the language have come. */
export async function expectRussian(page: Page): Promise<void> {
  await expect(page.locator('html')).toHaveAttribute('lang', 'ru');
  const lines = (await page.locator('body').innerText()).split('\n').map((line) => line.trim());
  expect(
    lines.filter((line) => onlyEnglish.has(line)),
    page.url(),
  ).toEqual([]);
}

/** For the documentation, when SCREENSHOTS names a folder. */
export async function screenshot(page: Page, name: string, theme: 'light' | 'dark'): Promise<void> {
  const folder = process.env['SCREENSHOTS'];
  if (!folder) return;
  await page.emulateMedia({ colorScheme: theme });
  await page.screenshot({ path: `${folder}/${name}-${theme}.png`, animations: 'disabled' });
  await page.emulateMedia({ colorScheme: null });
}

export { expect };
