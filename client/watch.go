package client

import (
	"net/http"
	"os"
	"strconv"
)

// WatcherHeader names the process that only watches: a holder that is about to end does not wait for it.
const WatcherHeader = "Troupe-Watcher"

// Watch says of the client that it only watches, with every request from now on.
func (c *Client) Watch() { c.watching.Store(true) }

func (c *Client) watches(req *http.Request) {
	if c.watching.Load() {
		req.Header.Set(WatcherHeader, strconv.Itoa(os.Getpid()))
	}
}
