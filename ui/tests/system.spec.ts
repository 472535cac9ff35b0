// What an installation is made of: connections, runners, targets, functions, and who changed what.

import { expect, expectAccessible, test } from './stand';

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
  await expect(row.getByRole('link', { name: 'film_dim' })).toBeVisible();
  await expectAccessible(page);
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
