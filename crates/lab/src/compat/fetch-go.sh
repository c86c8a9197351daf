# A module that requires the Go packages that follow the second argument, which is the module cache.
export GOMODCACHE="$2" GOFLAGS=-modcacherw PATH="$PATH:/usr/local/go/bin"
shift 2
cd suite
go mod init evenkeel/compat
go get "$@"
cd ..
keep
