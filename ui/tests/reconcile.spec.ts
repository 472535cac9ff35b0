// Is the mart equal to its source? Real differences, planted, compared, seen by column, taken along, repaired, proved.

import { readFile } from 'node:fs/promises';
import type { Page } from '@playwright/test';
import { expect, expectAccessible, expectRussian, screenshot, test } from './stand';

const TAB = '/ui/pipelines/film_dim/reconcile';
const verdict = (page: Page, word: string) => page.locator(`main [data-status=${word}]`).first();
const differing = (page: Page) => page.getByRole('region', { name: 'Rows that differ' });

test('a mart that was never compared says so, and is equal after a load', async ({ page, stand, as }) => {
  await stand.createPipeline('film_dim');
  await stand.runToEnd('film_dim');
  await as('operator');
  await page.goto('/ui/pipelines/film_dim');
  await expect(page.getByText('never compared')).toBeVisible();
  await page.getByRole('link', { name: 'Reconcile' }).first().click();
  await expect(page.getByText('It was never compared')).toBeVisible();
  await expect(page.getByText('Nobody has asked for one yet')).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await expect(page).toHaveURL(/\/reconcile\/[0-9a-f-]{36}$/);
  await expect(page.getByText('The target is equal to its source.')).toBeVisible();
  await expect(page.getByRole('row', { name: 'Rows 50 50' })).toBeVisible();
});

test('rows that differ are seen by kind and column, and downloaded', async ({ page, context, stand, as }) => {
  await stand.sql('delete from analytics.film_dim where id = 7');
  await stand.sql("update analytics.film_dim set title = 'film eight' where id = 8");
  await stand.sql("update analytics.film_dim set title = '', modified = null where id = 9");
  await stand.sql("insert into analytics.film_dim values (1007, 'nobody knows it', now())");
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await as('operator');

  // Counts tell that something differs, by keyboard alone.
  await page.goto(TAB);
  await page.getByRole('radio', { name: /^hash/ }).focus();
  await page.keyboard.press('ArrowUp');
  await expect(page).toHaveURL(/level=count/);
  await page.getByRole('button', { name: 'Copy as CLI' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('vitrina reconcile film_dim --level count');
  await page.getByRole('radio', { name: /^count/ }).focus();
  await page.keyboard.press('Enter');
  await expect(page.getByText('The target differs from its source.')).toBeVisible();
  await expect(page.getByRole('row', { name: 'Greatest id 50 1007' })).toBeVisible();
  await expect(page.getByText(/Compare by rows to look at them/)).toBeVisible();
  await expectAccessible(page);

  // Rows tell what.
  await page.getByRole('button', { name: 'Compare by rows' }).click();
  const rows = differing(page);
  await expect(rows.locator('tbody')).toHaveCount(4);
  await expect(rows.locator('[data-difference=missing]')).toContainText('the source has this row, the target does not');
  const renamed = rows.getByRole('row', { name: 'Different 8 title' });
  await expect(renamed.getByRole('cell').nth(3)).toHaveText('film 8');
  await expect(renamed.getByRole('cell').nth(4)).toHaveText('film eight');
  await expect(renamed.locator('mark')).toHaveText(['8', 'eight']);
  const emptied = rows.locator('[data-difference=different]').filter({ hasText: 'modified' });
  await expect(emptied).toContainText('NULL');
  await expect(emptied).toContainText('empty text');
  await expectAccessible(page);
  await screenshot(page, 'reconcile', 'light');

  await rows.getByRole('button', { name: 'Extra 1' }).click();
  await expect(page).toHaveURL(/kind=extra/);
  await expect(rows.locator('tbody')).toHaveCount(1);
  await expect(rows.locator('tbody')).toContainText('1007');
  await page.getByRole('button', { name: 'Copy as CLI' }).click();
  const id = page.url().split(/[/?]/).at(-2);
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(`vitrina differences ${id} --kind extra`);
  await rows.getByRole('button', { name: 'All 4' }).click();

  const csv = await downloaded(page, 'Download CSV');
  expect(csv.name).toBe(`film_dim-differences-${id}.csv`);
  expect(csv.lines[0]).toBe('kind,key,column,source,target');
  expect(csv.lines).toContain('different,"[""8""]",title,film 8,film eight');
  const ndjson = await downloaded(page, 'Download NDJSON');
  const kinds = ndjson.lines.map((line) => JSON.parse(line).kind);
  expect(kinds.sort()).toEqual(['different', 'different', 'extra', 'missing']);
});

test('a viewer sees that rows differ but not which, and is offered nothing', async ({ page, as }) => {
  await as('viewer');
  await page.goto('/ui/');
  const row = page.locator('tr[data-pipeline=film_dim]');
  await expect(row.locator('[data-status=differs]')).toHaveText('Differs');
  await expect(row).toContainText('4 rows');
  await expectAccessible(page);
  await row.getByRole('link', { name: 'Differs' }).click();
  await expect(page.getByText('tokens with the right to see rows')).toBeVisible();
  await expect(differing(page)).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Repair…' })).toHaveCount(0);
  await page.getByRole('link', { name: 'All reconciles' }).click();
  await expect(page.locator('tr[data-reconcile]')).toHaveCount(3);
  await expect(page.getByRole('button', { name: 'Compare', exact: true })).toHaveCount(0);
  await expectAccessible(page);
});

test('all of it is said in Russian, and fits a narrow screen', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/?is=differs');
  await page.getByRole('button', { name: 'Русский' }).click();
  await page.locator('[data-status=differs]').click();
  await expect(page.getByRole('button', { name: 'Скачать CSV' })).toBeVisible();
  await page.getByRole('button', { name: 'Исправить…' }).click();
  await expect(page.getByRole('dialog')).toContainText('в пределах');
  await expectRussian(page);
  await page.setViewportSize({ width: 400, height: 800 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(400);
});

test('more deletes than the limit allows are refused before anything is asked for', async ({ page, stand, as }) => {
  await stand.call('POST', '/pipelines/film_dim/update-config', { delete_limit: 0.01 });
  await as('operator');
  await page.goto('/ui/pipelines/film_dim');
  await page.getByRole('link', { name: 'Look at the reconcile' }).click();
  await page.getByRole('button', { name: 'Repair…' }).click();
  const dialog = page.getByRole('dialog', { name: 'What a repair would do' });
  await expect(dialog).toContainText('2% of 50 rows in the target, at most 1%: over the limit');
  await expect(dialog).toContainText('raise the delete limit');
  await expect(dialog.getByRole('button', { name: 'Repair these rows' })).toBeDisabled();
  await expectAccessible(page);
  await stand.call('POST', '/pipelines/film_dim/update-config', { delete_limit: 0.1 });
});

test('a repair is seen before it is made, followed, and proved', async ({ page, stand, as }) => {
  await as('operator');
  await page.goto('/ui/pipelines/film_dim');
  await page.getByRole('link', { name: 'Look at the reconcile' }).click();
  await page.getByRole('button', { name: 'Repair…' }).click();
  const dialog = page.getByRole('dialog', { name: 'What a repair would do' });
  await expect(dialog).toContainText('within the limit');
  const figures = dialog.getByRole('definition');
  await expect(figures.nth(0)).toHaveText('3');
  await expect(figures.nth(1)).toHaveText('1');
  await expectAccessible(page);
  await screenshot(page, 'repair', 'dark');
  expect(await stand.sql('select id::int from analytics.film_dim where id in (7, 1007)')).toEqual([{ id: 1007 }]);

  await dialog.getByRole('button', { name: 'Repair these rows' }).click();
  const repair = page.getByRole('region', { name: 'Repair' });
  await expect(repair.locator('[data-status=SUCCESS]')).toBeVisible();
  await expect(repair.locator('[data-status=equal]')).toBeVisible();
  await expect(repair).toContainText('Every row that differed is now as its source says.');
  await expectAccessible(page);
  const left =
    'select id, title, modified from content.film_work except select id, title, modified from analytics.film_dim';
  expect(await stand.sql(left)).toEqual([]);
  expect(await stand.sql('select count(*)::int from analytics.film_dim')).toEqual([{ count: 50 }]);

  await repair.getByRole('link', { name: 'Look at the proof' }).click();
  await expect(page.getByText('A proof compares exactly the rows that were repaired.')).toBeVisible();
  await page.getByRole('link', { name: 'Pipelines' }).click();
  await expect(page.locator('tr[data-pipeline=film_dim] [data-status=equal]')).toHaveText('Equal');
});

test('a comparison is followed while it works, and cancelled', async ({ page, stand, as }) => {
  await as('operator');
  await page.goto(TAB);
  // Nobody reads the mart as long as this lasts.
  await stand.sql('begin');
  await stand.sql('lock table analytics.film_dim in access exclusive mode');
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await expect(verdict(page, 'RUNNING')).toBeVisible();
  await expect(page.getByText('both sides are scanned')).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await expect(verdict(page, 'CANCELLED')).toBeVisible();
  await stand.sql('rollback');
});

test('no more rows are kept than was asked for, and they come page by page', async ({ page, stand, as }) => {
  await stand.sql('create table analytics.many (id bigint primary key, title text)');
  await stand.sql("insert into analytics.many select n, 'nobody knows it' from generate_series(101, 250) n");
  await stand.createPipeline('film_many', {
    target_table: 'analytics.many',
    source_query: 'select id, title from content.film_work',
  });
  await as('operator');
  await page.goto('/ui/pipelines/film_many/reconcile');
  await page.getByRole('radio', { name: /^rows/ }).check();
  await page.getByLabel('Keep at most, rows that differ').fill('120');
  await page.keyboard.press('Enter');
  await expect(page.getByText(/More rows differ than were kept: 120 rows/)).toBeVisible();
  await expect(differing(page).locator('tbody')).toHaveCount(100);
  await page.getByRole('button', { name: 'Show more' }).click();
  await expect(differing(page).locator('tbody')).toHaveCount(120);
  await expect(page.getByRole('button', { name: 'Show more' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Repair…' }).click();
  await expect(page.getByRole('dialog')).toContainText('they stay as they are');
});

test('a comparison that fails says what to do', async ({ page, stand, as }) => {
  await stand.createPipeline('film_nowhere', { target_table: 'analytics.nowhere' });
  await as('operator');
  await page.goto('/ui/pipelines/film_nowhere/reconcile');
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await expect(verdict(page, 'FAILED')).toBeVisible();
  await expect(page.getByRole('alert')).toContainText('What to do:');
  await expect(page.getByRole('alert')).toContainText('vitrina mart');
});

test('a schedule of comparisons is written, corrected and shown', async ({ page, as }) => {
  await as('admin');
  await page.goto('/ui/pipelines/film_dim/edit');
  const field = page.getByLabel('Reconcile schedule');
  await field.fill('every night');
  await expect(page.locator('[data-check]').filter({ hasText: 'every night' })).toBeVisible();
  await field.fill('6h');
  await expect(page.getByText('Nothing speaks against it')).toBeVisible();
  await page.getByRole('button', { name: 'Save…' }).click();
  const dialog = page.getByRole('dialog', { name: 'What will change' });
  await expect(dialog).toContainText('reconcile_schedule');
  await dialog.getByRole('button', { name: 'Save…' }).click();
  await expect(page.getByText(/Saved as version/)).toBeVisible();
  await page.getByRole('link', { name: 'Reconcile' }).first().click();
  await expect(page.getByText(/Compared by itself: 6h/)).toBeVisible();
  await page.getByRole('link', { name: 'Overview' }).click();
  const configured = page.getByRole('term').filter({ hasText: 'Reconcile schedule' });
  await expect(configured.locator('xpath=following-sibling::dd[1]')).toHaveText('6h');
});

async function downloaded(page: Page, button: string): Promise<{ name: string; lines: string[] }> {
  const waiting = page.waitForEvent('download');
  await page.getByRole('button', { name: button }).click();
  const download = await waiting;
  const text = await readFile(await download.path(), 'utf8');
  return { name: download.suggestedFilename(), lines: text.trimEnd().split('\n') };
}
