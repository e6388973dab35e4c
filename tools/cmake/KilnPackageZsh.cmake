# Run by cpack on the installed files before it packs them. Debian's zsh looks for completions of packages here alone.
set(zsh ${CPACK_TEMPORARY_DIRECTORY}/usr/share/zsh)
file(RENAME ${zsh}/site-functions ${zsh}/vendor-completions)
