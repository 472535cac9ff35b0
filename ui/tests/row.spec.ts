// Where did this row go? Real rows, lost, changed, refused and written by real runs, found by their keys.

import type { Page } from '@playwright/test';
import { expect, expectAccessible, expectRussian, screenshot, test } from './stand';

const TAB = '/ui/pipelines/film_dim/row';
const state = (page: Page) => page.locator('main [data-row]');
const fact = (page: Page, name: string) => page.locator(`main [data-fact=${name}]`);

async function find(page: Page, key: string) {
  await page.getByRole('searchbox', { name: 'Key of a row' }).fill(key);
  await page.getByRole('button', { name: 'Find' }).click();
}

test('a row is found on both sides, with the run and batch that wrote it', async ({ page, context, stand, as }) => {
  await stand.sql('alter table analytics.film_dim add column touched_at timestamptz');
  await stand.call('PUT', '/targets/analytics.film_dim', { key: ['id'], touch_column: 'touched_at' });
  await stand.createPipeline('film_dim');
  const { id } = await stand.runToEnd('film_dim');
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await as('operator');
  await page.goto('/ui/pipelines/film_dim');
  await page.getByRole('link', { name: 'Row', exact: true }).click();
  await expect(page.getByText('Where did this row go?')).toBeVisible();
  await expectAccessible(page);

  await find(page, '08');
  await expect(state(page)).toHaveText('In source and target, and equal');
  await expect(page).toHaveURL(/row\?key=08$/);
  const title = page.getByRole('row', { name: /^title/ });
  await expect(title.getByRole('cell')).toHaveText(['title', 'film 8', 'film 8']);
  await expect(fact(page, 'write').getByRole('link')).toHaveText(/by film_dim, batch \d+/);
  await expect(fact(page, 'write').getByRole('link')).toHaveAttribute('href', `/ui/pipelines/film_dim/runs/${id}`);
  await expect(fact(page, 'reject')).toHaveText('no');
  await expect(fact(page, 'reconcile')).toHaveText('never compared');
  await page.getByRole('button', { name: 'Copy as CLI' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('vitrina row film_dim 08');
  await expectAccessible(page);
});

test('a row that differs, is missing, extra or nowhere says so, and is read again', async ({ page, stand, as }) => {
  await stand.sql("update analytics.film_dim set title = 'film eight' where id = 8");
  await stand.sql('delete from analytics.film_dim where id = 7');
  await stand.sql("insert into analytics.film_dim values (1007, 'nobody knows it', now())");
  await stand.compareToEnd('film_dim', { level: 'rows' });
  await as('operator');
  await page.goto(`${TAB}?key=8`);
  await expect(state(page)).toHaveText('In source and target, and different');
  const title = page.getByRole('row', { name: /^title/ });
  await expect(title.locator('mark')).toHaveText(['8', 'eight']);
  await expect(fact(page, 'reconcile')).toContainText('Different');
  await expectAccessible(page);
  await screenshot(page, 'row', 'light');
  for (const [key, word] of [
    ['7', 'In the source only'],
    ['1007', 'In the target only'],
    ['31337', 'Neither in the source nor in the target'],
  ] as const) {
    await find(page, key);
    await expect(state(page)).toHaveText(word);
  }
  await expect(fact(page, 'reconcile')).toContainText('not among the rows that differ');

  await find(page, '7');
  await expect(state(page)).toHaveText('In the source only');
  await page.getByRole('button', { name: 'Read it again' }).click();
  await expect(page.getByText('backfill of 1 key')).toBeVisible();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
  await page.goto(`${TAB}?key=7`);
  await expect(state(page)).toHaveText('In source and target, and equal');
  await expect(fact(page, 'backfill').locator('[data-status=SUCCESS]')).toBeVisible();
});

test('a rejected row says why, when and by which run', async ({ page, stand, as }) => {
  await stand.sql('alter table analytics.film_dim add constraint short check (length(title) < 20)');
  await stand.sql("update content.film_work set title = 'a title that is far too long' where id = 9");
  await stand.call('POST', '/pipelines/film_dim/update-config', { reject_limit: 5 });
  const { id } = await stand.runToEnd('film_dim');
  await as('operator');
  await page.goto(`${TAB}?key=9`);
  await expect(fact(page, 'reject')).toContainText('23514');
  await expect(fact(page, 'reject').getByRole('link')).toHaveAttribute('href', `/ui/pipelines/film_dim/runs/${id}`);
  await expectAccessible(page);
});

test('a key that no row can have is refused with what to write', async ({ page, as }) => {
  await as('operator');
  await page.goto(TAB);
  await find(page, 'seven');
  await expect(page.getByRole('alert')).toContainText('no row can have this key');
  await expectAccessible(page);
});

test('the palette finds a row by keyboard alone, and so does the screen', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/');
  await expect(page.locator('tr[data-pipeline=film_dim]')).toBeVisible();
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox').pressSequentially('film_dim 8');
  await expect(page.getByRole('option', { selected: true })).toContainText('Where is row 8 of film_dim?');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/pipelines\/film_dim\/row\?key=8$/);
  await expect(state(page)).toHaveText('In source and target, and equal');
  await page.keyboard.press('/');
  await expect(page.getByRole('searchbox')).toBeFocused();
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.type('31337');
  await page.keyboard.press('Enter');
  await expect(state(page)).toHaveText('Neither in the source nor in the target');
});

test('all of it is said in Russian, fits a narrow screen, and a viewer is told what it takes', async ({ page, as }) => {
  await as('operator');
  await page.goto(`${TAB}?key=9`);
  await page.getByRole('button', { name: 'Русский' }).click();
  await expect(fact(page, 'reject')).toContainText('23514');
  await expectRussian(page);
  await page.setViewportSize({ width: 400, height: 800 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(400);
  await as('viewer');
  await page.goto(`${TAB}?key=8&`);
  await expect(page.getByText('Для поиска строки нужна другая роль')).toBeVisible();
  await expect(page.getByRole('searchbox')).toHaveCount(0);
});
