package lookup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Lock takes an exclusive lock between processes on a file and returns the function that gives it back. The kernel also
// gives it back when the process dies, so a lock never goes stale. onWait is called once if another process holds it.
func Lock(ctx context.Context, path string, onWait func()) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	for waited := false; ; {
		err := tryLock(file)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, errLocked) {
			_ = file.Close()
			return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		if !waited {
			waited = true
			onWait()
		}
		// Polled, since ctx could not end a blocking flock.
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
