package charts_test

import (
	"strings"
	"testing"
)

// What an image may be, and that its source stays.
func TestSchemaOfImages(t *testing.T) {
	const http = "url: 'https://images.example.org/a.qcow2', diskSize: 1Gi"
	checksum := "checksum: 'sha256:" + strings.Repeat("a", 64) + "'"
	digest := "docker://registry.example.org:5000/team/a@sha256:" + strings.Repeat("a", 64)
	rows := map[string]decision{}
	for name, test := range map[string]struct{ spec, old, want string }{
		"http":                          {spec: http},
		"http with all there is":        {spec: http + ", " + checksum + ", secretRef: {name: a}, storageClass: b, snapshotClass: c, import: {deadline: 1h, stallTimeout: 5m, retryLimit: 0}"},
		"http, not encrypted":           {spec: "url: 'http://a.example.org/', diskSize: 1Gi"},
		"no size":                       {spec: "url: 'https://a.example.org/'", want: "spec.diskSize: Required value"},
		"no size at all":                {spec: "url: 'https://a.example.org/', diskSize: 0", want: "spec.diskSize must be greater than 0"},
		"another scheme":                {spec: "url: 'file:///etc/shadow', diskSize: 1Gi", want: "spec.url must begin with https:// or http://"},
		"a space in the URL":            {spec: "url: 'https://a.example.org/a b', diskSize: 1Gi", want: "spec.url: Invalid value"},
		"an unknown type":               {spec: http + ", sourceType: ftp", want: "spec.sourceType: Unsupported value"},
		"s3":                            {spec: http + ", sourceType: s3"},
		"s3 with a checksum":            {spec: http + ", sourceType: s3, " + checksum, want: "spec.checksum is only allowed with sourceType http"},
		"a registry":                    {spec: "sourceType: registry, diskSize: 1Gi, url: '" + digest + "'"},
		"a registry with a tag":         {spec: "sourceType: registry, diskSize: 1Gi, url: 'docker://registry.example.org/a:1'", want: "because a tag can be moved"},
		"a checksum of another length":  {spec: http + ", checksum: 'sha256:aa'", want: "spec.checksum: Invalid value"},
		"no deadline":                   {spec: http + ", import: {deadline: 0s}", want: "spec.import.deadline must be greater than 0"},
		"another URL later":             {spec: "url: 'https://b.example.org/', diskSize: 1Gi", old: http, want: "spec.url cannot change"},
		"another type later":            {spec: http + ", sourceType: s3", old: http, want: "spec.sourceType cannot change"},
		"another checksum later":        {spec: http + ", checksum: 'md5:" + strings.Repeat("a", 32) + "'", old: http + ", " + checksum, want: "spec.checksum cannot change"},
		"a checksum later":              {spec: http + ", " + checksum, old: http, want: "cannot be added or removed"},
		"no Secret later":               {spec: http, old: http + ", secretRef: {name: a}", want: "cannot be added or removed"},
		"another Secret later":          {spec: http + ", secretRef: {name: b}", old: http + ", secretRef: {name: a}", want: "spec.secretRef cannot change"},
		"another StorageClass later":    {spec: http + ", storageClass: b", old: http + ", storageClass: a", want: "spec.storageClass cannot change"},
		"another snapshot class later":  {spec: http + ", snapshotClass: b", old: http + ", snapshotClass: a", want: "spec.snapshotClass cannot change"},
		"another size later":            {spec: "url: 'https://images.example.org/a.qcow2', diskSize: 2Gi", old: http, want: "spec.diskSize cannot change"},
		"the size in other words later": {spec: "url: 'https://images.example.org/a.qcow2', diskSize: 1024Mi", old: http},
		"other limits later":            {spec: http + ", import: {retryLimit: 1}", old: http + ", import: {retryLimit: 0}"},
	} {
		row := decision{kind: "VMDiskImage", spec: "{" + test.spec + "}", want: test.want}
		if test.old != "" {
			row.old = "{" + test.old + "}"
		}
		rows[name] = row
	}
	decides(t, rows)
}
