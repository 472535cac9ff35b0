// Is this index as it was declared, what will an edit change, and where did this row go? A real search server, loaded by real
// runs and changed behind Vitrina's back.

import type { Page } from '@playwright/test';
import { expect, expectAccessible, expectRussian, screenshot, test, told, type Stand } from './stand';

const index = () => told('VITRINA_INDEX');
const target = () => `es:${index()}`;
const address = () => `/ui/targets/${encodeURIComponent(target())}`;
const standing = (page: Page) => page.getByRole('region', { name: 'How it stands' });
const said = (page: Page, what: string) => standing(page).locator(`[data-standing=${what}]`);
const row = (page: Page) => page.locator('main [data-row]');
const fact = (page: Page, name: string) => page.locator(`main [data-fact=${name}]`);
const behind = async (stand: Stand) => Object.keys(await stand.search('GET', `_alias/${index()}`));

const mapping = {
  properties: {
    id: { type: 'long' },
    title: { type: 'text', fields: { keyword: { type: 'keyword', ignore_above: 256 } } },
    // As by default, which servers do not repeat.
    modified: { type: 'date', format: 'strict_date_optional_time||epoch_millis' },
  },
};

test('an index is shown behind its alias with its documents, its mapping and the one before', async ({
  page,
  stand,
  as,
}) => {
  await stand.call('PUT', `/targets/${target()}`, { key: ['id'], mapping, settings: { number_of_replicas: 0 } });
  await stand.createPipeline('movies_index', { target_table: target() });
  await as('operator');
  await page.goto('/ui/targets');
  await page.getByRole('link', { name: target() }).click();
  await expect(said(page, 'exists')).toHaveText('no');
  await expect(said(page, 'fields')).toHaveText('not there yet: the first run makes it');
  await expectAccessible(page);

  expect((await stand.runToEnd('movies_index')).status).toBe('SUCCESS');
  const [first] = await behind(stand);
  await page.getByRole('button', { name: 'Look again' }).click();
  await expect(said(page, 'exists')).toHaveText('yes');
  await expect(said(page, 'rows')).toHaveText('50');
  await expect(said(page, 'index')).toHaveText(first!);
  await expect(said(page, 'previous')).toHaveText('none is kept');
  await expect(said(page, 'fields')).toHaveText('as declared');
  await expect(page.getByRole('button', { name: 'Roll back…' })).toHaveCount(0);
  await expect(standing(page).locator('tr[data-field=id]').getByRole('cell')).toHaveText([
    'id',
    '{ "type": "long" }',
    '{ "type": "long" }',
  ]);

  await stand.runToEnd('movies_index');
  await page.getByRole('button', { name: 'Look again' }).click();
  await expect(said(page, 'previous')).toHaveText(first!);
  await expect(said(page, 'index')).not.toHaveText(first!);
  await expect(page.getByRole('button', { name: 'Roll back…' })).toBeVisible();
  await expectAccessible(page);

  // A pipeline leads to its index.
  await page.goto('/ui/pipelines/movies_index');
  await page.getByRole('link', { name: target() }).click();
  await expect(said(page, 'rows')).toHaveText('50');
});

test('a mapping that somebody has changed at the server differs, and says what mends it', async ({
  page,
  stand,
  as,
}) => {
  await stand.search('PUT', `${index()}/_mapping`, { dynamic: true, properties: { note: { type: 'text' } } });
  await as('operator');
  await page.goto(address());
  await expect(said(page, 'fields')).toHaveText('2 differ');
  await expect(standing(page).locator('tr[data-differs=true]')).toHaveCount(2);
  await expect(standing(page).locator('tr[data-field=note]').getByRole('cell')).toHaveText([
    /^note\s*differs$/,
    '—',
    '{ "type": "text" }',
  ]);
  await expect(standing(page).locator('tr[data-differs=true]').first()).toContainText('the index as a whole');
  await expect(said(page, 'rebuild')).toContainText('A full run builds the index as declared');
  await expect(page.getByRole('button', { name: 'Edit…' })).toHaveCount(0);
  await expectAccessible(page);
});

test('an edit says that the index will be built anew, before it is saved', async ({ page, as }) => {
  await as('admin');
  await page.goto(address());
  await page.getByRole('button', { name: 'Edit…' }).click();
  const dialog = page.getByRole('dialog', { name: `Edit ${target()}` });
  const save = dialog.getByRole('button', { name: 'Save' });
  const text = dialog.getByLabel(/^Mapping/);
  await expect(dialog.getByText('Nothing changes')).toBeVisible();
  await expect(save).toBeDisabled();
  await text.fill('{"properties": ');
  await expect(dialog.getByText('This is no JSON object')).toBeVisible();
  await expect(save).toBeDisabled();
  const exact = { properties: { ...mapping.properties, title: { type: 'keyword' } } };
  await text.fill(JSON.stringify(exact, null, 2));
  await expect(dialog.locator('[data-effect="index.rebuild"]')).toContainText('The index is built anew');
  await expect(dialog).toContainText('Until then readers see the index as it is');
  await expectAccessible(page);
  await screenshot(page, 'index-edit', 'dark');
  await save.click();
  await expect(page.getByText(`${target()} is saved`)).toBeVisible();
  await expect(said(page, 'fields')).toHaveText('3 differ');
  await expect(standing(page).locator('tr[data-field=title] td').nth(1)).toHaveText('{ "type": "keyword" }');
  await expectAccessible(page);
  await page.reload();
  await expect(said(page, 'rebuild')).toBeVisible();
  await screenshot(page, 'index', 'light');

  // Settings that are not the mapping's ask as well, a wrong one is told at once.
  await page.getByRole('button', { name: 'Edit…' }).click();
  await dialog.getByLabel(/^Key columns/).fill('id, id');
  await expect(dialog).toContainText('a column stands in the key once');
  await expect(save).toBeEnabled();
  await save.click();
  await expect(dialog.getByRole('alert')).toContainText('the target cannot be saved as it is');
});

test('all of it is said in Russian, fits a narrow screen, and a viewer is told what it takes', async ({ page, as }) => {
  await as('admin');
  await page.goto(address());
  await page.getByRole('button', { name: 'Русский' }).click();
  const here = page.getByRole('region', { name: 'Как обстоят дела' });
  await expect(here.locator('[data-standing=fields]')).toHaveText('расходятся 3');
  await expect(here.locator('[data-standing=rebuild]')).toContainText('Полный запуск построит индекс');
  await expectOnlyNames(page);
  await page.getByRole('button', { name: 'Изменить…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel(/^Настройки/).fill('{"number_of_replicas": 1}');
  await expect(dialog.locator('[data-effect="index.rebuild"]')).toContainText('Индекс строится заново');
  await expectOnlyNames(page);
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 400, height: 800 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(400);
  await as('viewer');
  await page.goto(`${address()}?`);
  await expect(page.getByText('Чтобы посмотреть на цель, нужна другая роль')).toBeVisible();
  await expectOnlyNames(page);
});

test('a full load ends the differences, by keyboard alone', async ({ page, stand, as }) => {
  const [before] = await behind(stand);
  await as('operator');
  await page.goto(address());
  await expect(said(page, 'fields')).toHaveText('3 differ');
  for (const name of ['Copy as CLI', 'Look again', 'Roll back…', 'Load it anew'])
    await tabTo(page, page.getByRole('button', { name }));
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/pipelines\/movies_index\/runs\/[0-9a-f-]{36}$/);
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
  await page.goto(address());
  await expect(said(page, 'fields')).toHaveText('as declared');
  await expect(said(page, 'previous')).toHaveText(before!);
  await expect(said(page, 'rebuild')).toHaveCount(0);
  await expect(standing(page).locator('tr[data-field=note]')).toHaveCount(0);
  await tabTo(page, page.getByRole('group', { name: 'Columns, declared and live' }));
});

test('a document is found by its key: who wrote it and when, how it differs, and why it was rejected', async ({
  page,
  stand,
  as,
}) => {
  await as('operator');
  await page.goto('/ui/pipelines/movies_index/row?key=8');
  await expect(row(page)).toHaveText('In source and target, and equal');
  await expect(fact(page, 'write').getByRole('link')).toHaveText(/^by a run of movies_index that began .*(ago|now)$/);
  await stand.search('POST', `${index()}/_update/8`, { doc: { title: 'film eight' } });
  await stand.search('DELETE', `${index()}/_doc/7`);
  await page.getByRole('button', { name: 'Find' }).click();
  await expect(row(page)).toHaveText('In source and target, and different');
  await expect(page.getByRole('row', { name: /^title/ }).locator('mark')).toHaveText(['8', 'eight']);
  await expectAccessible(page);
  await page.goto('/ui/pipelines/movies_index/row?key=7');
  await expect(row(page)).toHaveText('In the source only');
  await page.getByRole('button', { name: 'Read it again' }).click();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
  await page.goto('/ui/pipelines/movies_index/row?key=7');
  await expect(row(page)).toHaveText('In source and target, and equal');

  // Documents know no such year.
  await stand.sql("update content.film_work set modified = '12024-01-01' where id = 9");
  await stand.call('POST', '/pipelines/movies_index/update-config', { reject_limit: 5 });
  expect((await stand.runToEnd('movies_index')).status).toBe('SUCCESS');
  await page.goto('/ui/pipelines/movies_index/rejects');
  await page.getByRole('link', { name: '9', exact: true }).click();
  await expect(page).toHaveURL(/\/row\?key=9$/);
  await expect(fact(page, 'reject')).toContainText('row.unwritable modified: a date outside of the years');
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Русский' }).click();
  await expect(fact(page, 'reject')).toContainText('row.unwritable');
  await expectRussian(page);
});

async function tabTo(page: Page, wanted: ReturnType<Page['locator']>) {
  await expect(wanted).toBeVisible();
  for (let tabs = 0; tabs < 40 && !(await wanted.evaluate((found) => found === document.activeElement)); tabs += 1)
    await page.keyboard.press('Tab');
  await expect(wanted).toBeFocused();
}

/** Nothing of the screen is English but names, JSON and commands. */
async function expectOnlyNames(page: Page) {
  await expectRussian(page);
  const lines = await page.locator('main, dialog').evaluateAll((parts) =>
    parts.flatMap((part) => {
      const copy = part.cloneNode(true) as HTMLElement;
      for (const name of copy.querySelectorAll('code, pre, textarea, .mono, h1, h2, a')) name.remove();
      return (copy.textContent ?? '').split('\n').map((line) => line.trim());
    }),
  );
  const names = new RegExp(`movies_index|${index()}|JSON|CLI|id|search|NULL`, 'g');
  expect(lines.map((line) => line.replace(names, '')).filter((line) => /[A-Za-z]{2}/.test(line))).toEqual([]);
}
