declare module "*.css"; // esbuild writes it to a file of its own
