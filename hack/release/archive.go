package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A file of an archive is at path on this machine. Owner and time are not those that it has there.
type file struct {
	name, path string
	mode       fs.FileMode
}

// below returns the files of a folder, in the order of their names, which get a prefix.
func below(folder, prefix string) (files []file, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		files = append(files, file{name: prefix + filepath.ToSlash(relative), path: path, mode: 0o644})
		return err
	})
	return files, err
}

// write makes a file of what a function writes.
func write(path string, do func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

func writeTar(w io.Writer, when time.Time, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		info, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: info.Size(), ModTime: when, Format: tar.FormatPAX}
		if err := errors.Join(t.WriteHeader(header), f.copy(t)); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeTarGz(w io.Writer, when time.Time, files []file) error {
	z := gzip.NewWriter(w)
	return errors.Join(writeTar(z, when, files), z.Close())
}

func writeZip(w io.Writer, when time.Time, files []file) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: when}
		header.SetMode(f.mode)
		entry, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if err := f.copy(entry); err != nil {
			return err
		}
	}
	return z.Close()
}

func (f file) copy(w io.Writer) error {
	source, err := os.Open(f.path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, source)
	return errors.Join(err, source.Close())
}
