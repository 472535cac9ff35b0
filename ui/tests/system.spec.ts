// What an installation is made of: connections, runners, targets, functions, and who changed what.

import { expect, expectAccessible, expectRussian, test } from './stand';

test('a connection is tested by a runner, and missing rights are told as SQL', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/connections');
  await page.getByRole('button', { name: 'Test source' }).click();
  const row = page.locator('tr[data-connection=source]');
  await expect(row.getByRole('status')).toContainText('PostgreSQL');
  await expect(row).not.toContainText('password');
  await expectAccessible(page);
});

test('targets tell who writes to them', async ({ page, stand, as }) => {
  await stand.createPipeline('film_dim');
  await stand.call('PUT', '/targets/analytics.film_dim', { key: ['id'] });
  await as('viewer');
  await page.goto('/ui/targets');
  const row = page.locator('tr[data-target="analytics.film_dim"]');
  await expect(row.getByRole('link', { name: 'film_dim', exact: true })).toBeVisible();
  await expectAccessible(page);
});

test('a mart is shown beside the columns of its query, and its description is edited', async ({ page, stand, as }) => {
  await as('operator');
  await page.goto('/ui/targets');
  await page.getByRole('link', { name: 'analytics.film_dim' }).click();
  const standing = page.getByRole('region', { name: 'How it stands' });
  await expect(standing.locator('[data-standing=fields]')).toHaveText('as declared');
  await expect(standing.locator('tr[data-field=title]').getByRole('cell')).toHaveText(['title', 'text', 'text']);
  await expect(page.getByRole('button', { name: 'Edit…' })).toHaveCount(0);
  await expectAccessible(page);
  await stand.sql('alter table analytics.film_dim drop column modified');
  await page.getByRole('button', { name: 'Look again' }).click();
  await expect(standing.locator('[data-standing=fields]')).toHaveText('1 differs');
  await expect(standing.locator('[data-standing=lacks]')).toContainText('add column "modified"');
  await expect(standing.locator('tr[data-field=modified]')).toContainText('differs');
  await expectAccessible(page);
  await stand.sql('alter table analytics.film_dim add column modified timestamptz');

  await as('admin');
  await page.goto('/ui/targets/analytics.film_dim?');
  await page.getByRole('button', { name: 'Edit…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Edit analytics.film_dim' });
  await dialog.getByLabel('Touch column').fill('modified');
  await dialog.getByLabel('Created if missing').check();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('analytics.film_dim is saved')).toBeVisible();
  const saved = await stand.call('GET', '/targets/analytics.film_dim');
  expect([saved.key, saved.touch_column, saved.create_if_missing]).toEqual([['id'], 'modified', true]);
  await stand.call('PUT', '/targets/analytics.film_dim', { key: ['id'] });
  await page.getByRole('button', { name: 'Русский' }).click();
  await expect(page.getByRole('region', { name: 'Как обстоят дела' })).toBeVisible();
  await expectRussian(page);
  await page.getByRole('button', { name: 'English' }).click();
});

test('the audit tells who changed what, to admins only', async ({ page, stand, as }) => {
  await stand.call('POST', '/pipelines/film_dim/update-config', { batch_size: 20 });
  await as('admin');
  await page.goto('/ui/audit');
  await page.getByRole('searchbox').fill('pipeline.edit');
  await page.locator('tbody summary').first().click();
  await expect(page.locator('tbody tr').first()).toContainText('batch_size');
  await expectAccessible(page);
  await as('viewer');
  await page.goto('/ui/runners');
  await expect(page.getByRole('link', { name: 'Audit' })).toHaveCount(0);
});

test('a screen says what there is not, and an address that leads nowhere says so', async ({ page, as }) => {
  await as('viewer');
  await page.goto('/ui/python');
  await expect(page.getByText('No runner has registered a function')).toBeVisible();
  await expectAccessible(page);
  await page.goto('/ui/elsewhere');
  await expect(page.getByRole('heading', { name: 'There is nothing here' })).toBeVisible();
  await page.goto('/ui/pipelines/nobody');
  await expect(page.getByRole('alert')).toContainText('nobody');
});

test('every screen offers itself as a command', async ({ page, context, as }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await as('viewer');
  for (const [path, command] of [
    ['/', 'vitrina status'],
    ['/pipelines/film_dim', 'vitrina status film_dim'],
    ['/pipelines/film_dim/state', 'vitrina state film_dim --history'],
    ['/connections', 'vitrina conn list'],
    ['/runners', 'vitrina runners'],
  ] as const) {
    await page.goto(`/ui${path}`);
    await page.getByRole('button', { name: 'Copy as CLI' }).click();
    await expect(page.getByText(`Copied: ${command}`)).toBeVisible();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(command);
  }
});

test('a runner is drained, and the list says that nobody is left', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/runners');
  await page.getByRole('button', { name: 'Drain…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Drain…' }).click();
  await expect(page.locator('tr[data-runner=browsed]')).toContainText(/draining|stopped/);
  await page.goto('/ui/');
  await expect(page.getByRole('alert')).toContainText('No runner is alive');
});
