// From nothing to a mart in the browser: write, be corrected, preview, save, run, edit.

import { expect, expectAccessible, screenshot, test } from './stand';
import type { Page } from '@playwright/test';

const editor = (page: Page) => page.getByRole('textbox', { name: 'Query', exact: true });

async function write(page: Page, sql: string) {
  await editor(page).click();
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.insertText(sql);
}

test('a pipeline is written, corrected at line and column, previewed, created and run', async ({ page, stand, as }) => {
  await stand.sql('create table analytics.titles (id bigint primary key, title text)');
  await as('admin');
  await page.goto('/ui/');
  await page.getByRole('link', { name: 'New pipeline' }).first().click();
  await page.getByLabel('Name', { exact: true }).fill('titles');
  await page.getByLabel('Target', { exact: true }).fill('analytics.titles');
  await write(page, 'select id,\n       titel\n  from content.film_work');
  const finding = page.locator('[data-check]').filter({ hasText: 'Line 2, column 8' });
  await expect(finding).toContainText('titel');
  await expect(page.locator('.cm-lintRange-error')).toHaveText('titel');
  await expect(page.getByRole('button', { name: 'Create' })).toBeDisabled();
  await expectAccessible(page);
  // What completes the query would cover it.
  await page.getByLabel('Name', { exact: true }).focus();
  await screenshot(page, 'editor', 'light');

  await write(page, 'select id,\n       title\n  from content.film_work');
  await expect(page.getByText('Nothing speaks against it')).toBeVisible();
  await page.getByRole('button', { name: 'Preview' }).click();
  const preview = page.getByRole('region', { name: 'Preview' });
  await expect(preview.getByRole('row')).toHaveCount(21);
  await expect(preview).toContainText('film 1');
  await page.getByRole('button', { name: 'Create' }).click();
  await expect(page.getByText('titles is created')).toBeVisible();
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
  expect(await stand.sql('select count(*)::int from analytics.titles')).toEqual([{ count: 50 }]);
});

test('an edit shows what it will change before it is saved, and never overwrites unseen', async ({
  page,
  stand,
  as,
}) => {
  await as('admin');
  await page.goto('/ui/pipelines/titles/edit');
  await write(page, 'select id,\n       title\n  from content.film_work\n where id > 10');
  await page.getByLabel('Compare with the saved query').check();
  await expect(page.locator('.cm-changedLine').filter({ hasText: 'where id > 10' })).toBeVisible();
  await expect(page.getByText('Nothing speaks against it')).toBeVisible();
  await expect(page.getByText('1 field changed')).toBeVisible();
  await page.getByRole('button', { name: 'Save…' }).click();
  const dialog = page.getByRole('dialog', { name: 'What will change' });
  await expect(dialog).toContainText('source_query');
  await expect(dialog).toContainText('where id > 10');
  await expectAccessible(page);

  // Somebody else is faster.
  await stand.call('POST', '/pipelines/titles/update-config', { batch_size: 77 });
  await dialog.getByRole('button', { name: 'Save…' }).click();
  const moved = page.getByRole('dialog', { name: 'Somebody has changed it meanwhile' });
  await moved.getByRole('button', { name: 'Keep my edit' }).click();
  await expect(dialog).toBeVisible();
  await dialog.getByRole('button', { name: 'Save…' }).click();
  await expect(page.getByText(/Saved as version/)).toBeVisible();
  const saved = await stand.call('GET', '/pipelines/titles');
  expect([saved.source_query.includes('id > 10'), saved.batch_size]).toEqual([true, 77]);
});

test('tables and columns of the live source complete the query', async ({ page, stand, as }) => {
  await stand.sql('create table content.person (id bigint primary key, full_name text)');
  await as('operator');
  const schema = page.waitForResponse((answer) => answer.url().endsWith('/connections/source/schema'));
  await page.goto('/ui/new');
  expect((await schema).ok()).toBe(true);
  const options = page.locator('.cm-tooltip-autocomplete').getByRole('option');
  await write(page, 'select 1 from content.');
  await page.keyboard.type('pers');
  await options.filter({ hasText: 'person' }).click();
  await expect(editor(page)).toHaveText('select 1 from content.person');
  await page.keyboard.type(' p where p.full');
  await expect(options.filter({ hasText: 'full_name' })).toContainText('text');
  await expectAccessible(page);
  await options.filter({ hasText: 'full_name' }).click();
  await expect(editor(page)).toHaveText('select 1 from content.person p where p.full_name');
});

test('the plan of a query is told with what it costs and whether an index serves its cursor', async ({
  page,
  stand,
  as,
}) => {
  await stand.sql('create table content.event (id bigint primary key, modified timestamptz not null)');
  await stand.sql('insert into content.event select n, now() from generate_series(1, 100000) n');
  await stand.sql('analyze content.event');
  await as('admin');
  await page.goto('/ui/new');
  await page.getByLabel('Name', { exact: true }).fill('events');
  await page.getByLabel('Target', { exact: true }).fill('analytics.titles');
  await page.getByLabel('Mode', { exact: true }).selectOption('incremental');
  await page.getByLabel(/^Incremental key/).fill('modified');
  await page.getByLabel(/^Incremental id key/).fill('id');
  await write(page, 'select id, modified from content.event');
  await page.getByRole('button', { name: 'Explain' }).click();
  const plan = page.getByRole('region', { name: 'What the planner expects' });
  await expect(plan).toContainText('About 100,000 rows');
  await expect(plan.locator('tr[data-costly=true]').first()).toContainText('a large table, read whole');
  await expect(plan).toContainText('No index of content.event begins with modified, id');
  await expectAccessible(page);
  await stand.sql('create index event_cursor on content.event (modified, id)');
  await page.getByRole('button', { name: 'Explain' }).click();
  await expect(plan).toContainText('An index serves the cursor');
  await expect(plan).toContainText('event_cursor');
  await expectAccessible(page);
  await write(page, 'select id, modified from auth.users');
  await page.getByRole('button', { name: 'Explain' }).click();
  await expect(page.locator('[data-check]').filter({ hasText: 'auth.users' }).first()).toBeVisible();
});

test('a task plan is written as in a file, and its findings stand beside it', async ({ page, as }) => {
  await as('admin');
  await page.goto('/ui/new');
  await page.getByLabel('Name', { exact: true }).fill('planned');
  await page.getByLabel('Target', { exact: true }).fill('analytics.titles');
  await page.getByText('Tasks, watched tables and ways of reading').click();
  const plan = page.getByLabel('Task plan, as in a file');
  await plan.fill('[{"order_index": 1, "task_type": "SQL", "body": "select id, titel from content.film_work"}]');
  await plan.blur();
  await expect(page.locator('[data-check]').filter({ hasText: 'titel' })).toBeVisible();
  await expectAccessible(page);
});

test('everything can be done by keyboard alone', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/');
  await expect(page.locator('tr[data-pipeline=titles]')).toBeVisible();
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox').pressSequentially('titl');
  await expect(page.getByRole('option', { selected: true })).toContainText('titles');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/pipelines\/titles$/);
  const run = page.getByRole('button', { name: 'Run', exact: true });
  for (let tabs = 0; tabs < 30 && !(await run.evaluate((button) => button === document.activeElement)); tabs += 1) {
    await page.keyboard.press('Tab');
  }
  await expect(run).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();

  // The editor lets the keyboard out again.
  await page.goto('/ui/pipelines/titles/edit');
  await editor(page).focus();
  await page.keyboard.press('Tab');
  await expect(editor(page)).not.toBeFocused();
  await page.keyboard.press('g');
  await page.keyboard.press('p');
});

test('who may not save may still try, and a viewer only looks', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/pipelines/titles/edit');
  await expect(page.getByRole('button', { name: 'What would change?' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Save…' })).toHaveCount(0);
  await as('viewer');
  await page.goto('/ui/pipelines/titles/edit?');
  await expect(page.getByText('You may look; changing takes another role')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Preview' })).toHaveCount(0);
  await expect(page.getByLabel('Batch size, rows')).not.toBeEditable();
});
