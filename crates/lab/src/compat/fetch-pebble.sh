# The programs of the Go packages that follow the second argument, which is the module cache.
export GOMODCACHE="$2" GOFLAGS=-modcacherw GOBIN="$work/suite" PATH="$PATH:/usr/local/go/bin"
shift 2
go install "$@"
keep
