# A directory `node_modules` with the packages that follow the first argument.
shift
npm install --prefix suite --no-audit --no-fund --ignore-scripts --loglevel error "$@"
keep
